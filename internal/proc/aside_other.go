//go:build !linux && !darwin

package proc

import (
	"context"
	"os/exec"
	"time"
)

// Aside runs cmd, a helper of whoever leads. When ctx ends, cmd itself is ended; what it
// started is not, on this system.
func (*Supervisor) Aside(ctx context.Context, cmd *exec.Cmd, _ time.Duration) ([]Survivor, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	return nil, cmd.Wait()
}
