// Package lint holds the rules of docs/STYLE.md that a machine can check. Each
// message says what to use instead.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// source is one parsed file of the project.
type source struct {
	path string // relative to the root, with slashes
	file *ast.File
	fset *token.FileSet
	text string
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(n ast.Node) int { return s.fset.Position(n.Pos()).Line }

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == ".git" || name == ".cache" || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		out = append(out, source{path: filepath.ToSlash(rel), file: f, fset: fset, text: string(text)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d files found: is the root right?", len(out))
	}
	return out
}

// A file is read in one sitting, a function on one screen.
const (
	maxFileLines     = 500
	maxFunctionLines = 80
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if n := strings.Count(s.text, "\n"); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d: split it by what it is about", s.path, n, maxFileLines)
		}
		if s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				if lines := s.ownLines(n); lines > maxFunctionLines {
					t.Errorf("%s:%d: a function of %d lines, at most %d", s.path, s.line(n), lines, maxFunctionLines)
				}
			}
			return true
		})
	}
}

// ownLines is how many lines a function has without those of the function
// literals in it, which count by themselves: a table of small functions is no
// long function.
func (s source) ownLines(f ast.Node) int {
	span := func(n ast.Node) int { return s.fset.Position(n.End()).Line - s.line(n) }
	lines := span(f)
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok && n != f {
			lines -= span(lit)
			return false
		}
		return true
	})
	return lines
}

// Every exported name says what it is.
func TestExportedNamesAreDocumented(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.test() || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range s.file.Decls {
			undocumented(d, func(n ast.Node, name string) {
				t.Errorf("%s:%d: %s has no comment: say what it is, its unit, its errors", s.path, s.line(n), name)
			})
		}
	}
}

func undocumented(d ast.Decl, report func(ast.Node, string)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			report(d, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					report(s, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						report(s, n.Name)
					}
				}
			}
		}
	}
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if gen, ok := typ.(*ast.IndexExpr); ok {
		typ = gen.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// The pure cores know no clock, no randomness, no I/O and no goroutine; the
// client knows time only through internal/clock.
func TestPurity(t *testing.T) {
	t.Parallel()
	pure := regexp.MustCompile(`^internal/core/`)
	banned := map[string]string{
		"time.Now": "an argument", "time.Since": "an argument", "time.Sleep": "an argument", "time.AfterFunc": "an effect",
		"time.NewTimer": "an effect", "time.After": "an effect", "time.Tick": "an effect",
	}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		core := pure.MatchString(s.path)
		client := !strings.Contains(s.path, "/") && s.file.Name.Name == "tenure"
		settle := strings.HasPrefix(s.path, "internal/settle/") || strings.HasPrefix(s.path, "internal/deadline/")
		if core {
			for _, imp := range s.file.Imports {
				switch path := strings.Trim(imp.Path.Value, `"`); path {
				case "context", "os", "io", "net", "sync", "math/rand", "math/rand/v2", "crypto/rand":
					t.Errorf("%s imports %s: a core decides, it does not act", s.path, path)
				}
			}
		}
		if !core && !client && !settle {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok && core {
				t.Errorf("%s:%d: a core starts no goroutine", s.path, s.line(n))
			}
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			name := x.Name + "." + sel.Sel.Name
			if instead, bad := banned[name]; bad && !allowed(s, name) {
				t.Errorf("%s:%d: %s: use %s", s.path, s.line(n), name, clockOr(core, instead))
			}
			return true
		})
	}
}

// allowed: how long a probe's verdict stands is a matter of days by the wall
// clock.
func allowed(s source, name string) bool {
	return s.path == "memory.go" && (name == "time.Now" || name == "time.Since")
}

func clockOr(core bool, instead string) string {
	if core {
		return instead
	}
	return "the client's clock (internal/clock)"
}

// Unit tests wait for events or virtual time. A sleep is only allowed inside a
// testing/synctest bubble, which its file imports, in tests that drive processes,
// which say so, and in benchmarks.
func TestNoSleepsInTests(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !s.test() || strings.HasPrefix(s.path, "bench/") || strings.Contains(s.text, `"testing/synctest"`) || strings.Contains(s.text, "inWorld(") {
			continue
		}
		lines := strings.Split(s.text, "\n")
		for i, l := range lines {
			near := strings.ToLower(strings.Join(lines[max(0, i-8):i+1], " "))
			if strings.Contains(l, "time.Sleep(") && !strings.Contains(near, "poll") {
				t.Errorf("%s:%d: a sleep in a test: use testing/synctest, or say that it is a bounded poll of another process", s.path, i+1)
			}
		}
	}
}

// The core module needs the standard library and golang.org/x/sys only, and no
// package of it reaches into a driver's module.
func TestCoreImports(t *testing.T) {
	t.Parallel()
	const self = "github.com/tenure-project/tenure"
	for _, s := range sources(t) {
		if s.test() || otherModule(s.path) {
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(path, self) && !strings.HasPrefix(path, "golang.org/x/sys") {
				t.Errorf("%s imports %s: the core module needs only the standard library and golang.org/x/sys", s.path, path)
			}
			if rel, ok := strings.CutPrefix(path, self+"/"); ok && otherModule(rel+"/x.go") {
				t.Errorf("%s imports %s, which is a module of its own", s.path, path)
			}
		}
	}
}

func otherModule(path string) bool {
	for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// Every test that docs/GUARANTEES.md and docs/BUGS.md name exists.
func TestDocsNameRealTests(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names[f.Name.Name] = true
			}
		}
	}
	cited := regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]+)(?:/[^`]*)?`")
	for _, doc := range []string{"GUARANTEES.md", "BUGS.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		found := cited.FindAllStringSubmatch(string(text), -1)
		if len(found) < 10 {
			t.Errorf("docs/%s names only %d tests", doc, len(found))
		}
		for _, m := range found {
			if !names[m[1]] {
				t.Errorf("docs/%s names %s, which does not exist", doc, m[1])
			}
		}
	}
}
