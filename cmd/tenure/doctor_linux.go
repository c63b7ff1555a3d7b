package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readClocks reads the kernel's clocks and their correction. It changes nothing.
func readClocks() clocks {
	var c clocks
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) == nil {
		c.mono = time.Duration(ts.Nano())
	}
	var t unix.Timex // Modes 0: read only
	if _, err := unix.Adjtimex(&t); err != nil {
		c.slewErr = fmt.Errorf("adjtimex: %w", err)
	} else {
		c.slewPPM = slewPPM(int64(t.Freq), int64(t.Tick))
	}
	if text, err := os.ReadFile("/proc/self/timens_offsets"); err == nil {
		c.shift = clockShift(string(text))
	}
	return c
}

// slewPPM turns the kernel's correction into parts per million: freq is in
// units of 2^-16 ppm, tick in microseconds per 10 ms.
func slewPPM(freq, tick int64) float64 {
	return float64(freq)/65536 + float64(tick-10000)*100
}

// clockShift is how much further a time namespace shifts the boot clock than
// the monotonic one.
func clockShift(offsets string) time.Duration {
	by := map[string]time.Duration{}
	for line := range strings.Lines(offsets) {
		var name string
		var sec, nsec int64
		if n, _ := fmt.Sscan(line, &name, &sec, &nsec); n == 3 {
			by[name] = time.Duration(sec)*time.Second + time.Duration(nsec)
		}
	}
	return by["boottime"] - by["monotonic"]
}

// fsNames are the file systems that the doctor names, by their number.
var fsNames = map[uint32]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	0x2FC12FC1:                 "zfs",
	0xCA451A4E:                 "bcachefs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
}

// fileSystem names the file system that path lies on.
func fileSystem(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", err
	}
	if name, ok := fsNames[uint32(st.Type)]; ok {
		return name, nil
	}
	return fmt.Sprintf("unknown (0x%X)", uint32(st.Type)), nil
}
