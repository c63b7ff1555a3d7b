package fileguard

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// processIdentity says when the process pid, as this process sees it, started,
// in ticks since boot, and the number of the PID namespace in which that is so.
// Zero is unknown.
func processIdentity(pid int) (started, space uint64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The name in parentheses may hold anything; the state comes after it as
	// field 3, the start as field 22.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) > 19 {
		started, _ = strconv.ParseUint(fields[19], 10, 64)
	}
	link, _ := os.Readlink("/proc/self/ns/pid") // "pid:[4026531836]"
	_, number, _ := strings.Cut(strings.TrimSuffix(link, "]"), "[")
	space, _ = strconv.ParseUint(number, 10, 64)
	return started, space
}
