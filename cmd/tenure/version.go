package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/internal/record"
)

// versionJSON is the shape of version --json.
type versionJSON struct {
	Schema  int    `json:"schema"`
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Level   int    `json:"format_level"`
}

func newVersionCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the program and of the record format",
		Args:  args(0),
		RunE: a.action(func(_ context.Context, _ *cobra.Command, _ []string) error {
			v := versionJSON{
				Schema: schema, Version: version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Level: record.Level,
			}
			if asJSON {
				return a.json(v)
			}
			a.printf("tenure %s\nformat level %d\n%s %s/%s\n", v.Version, v.Level, v.Go, v.OS, v.Arch)
			return nil
		}),
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// version is the module's version, or the revision that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
