//go:build linux || darwin

package filestore

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// wait stands in line and says when its turn comes; then it waits for a line of
// input, and leaves.
func (p part) wait(ctx context.Context, s *Store) int {
	t, err := s.Enqueue(ctx, p.Key)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("stands")
	if err := t.Wait(ctx, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("turn")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	t.Leave()
	fmt.Println("left")
	return 0
}

// witness makes a witness and says its mark. If Op is "child", it first starts a
// child that outlives it. Then it waits for a line of input.
func (p part) witness(ctx context.Context, s *Store) int {
	t, err := s.Enqueue(ctx, "ns/lease/line")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	w, err := s.NewWitness(ctx)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	mark, err := json.Marshal(w.Mark())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(string(mark))
	if p.Op == "child" {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleVariable+`={"Role":"idle","Path":"`+p.Path+`-child"}`)
		child.Stdin = os.Stdin
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(child.Process.Pid)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	t.Leave()
	if err := w.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
