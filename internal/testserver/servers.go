package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Versitygw is an S3 server over a folder.
type Versitygw struct {
	*Process
	// Endpoint is its URL, such as "http://127.0.0.1:7070".
	Endpoint string
	// Access and Secret are the keys of its root account.
	Access, Secret string
	// Dir holds one folder for each bucket.
	Dir string
}

// StartVersitygw starts one in a folder below dir.
func StartVersitygw(dir string) (*Versitygw, error) {
	program, err := Cache("bin", "versitygw-v1.8.0")
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	v := &Versitygw{Access: "tester", Secret: "tester-secret", Dir: filepath.Join(dir, "buckets")}
	if err := os.MkdirAll(v.Dir, 0o700); err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	v.Endpoint = "http://" + addr
	cmd := exec.Command(program, "--port", addr, "posix", v.Dir)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+v.Access, "ROOT_SECRET_KEY="+v.Secret)
	v.Process, err = Start(cmd, Dialable(addr), 30*time.Second)
	return v, err
}

// Azurite is Microsoft's emulator of Azure Blob Storage.
type Azurite struct {
	*Process
	// Endpoint is the URL of its one account.
	Endpoint string
	// Account and Key are the well-known credentials of the emulator.
	Account, Key string
}

// StartAzurite starts one that keeps everything in memory.
func StartAzurite() (*Azurite, error) {
	script, err := Cache("azurite-3.37.0", "node_modules", "azurite", "dist", "src", "blob", "main.js")
	if err != nil {
		return nil, err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w (%v)", ErrMissing, err)
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	a := &Azurite{
		Account: "devstoreaccount1",
		Key:     "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	a.Endpoint = "http://" + addr + "/" + a.Account
	cmd := exec.Command(node, script, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck",
		"--blobHost", "127.0.0.1", "--blobPort", fmt.Sprint(port))
	a.Process, err = Start(cmd, Dialable(addr), time.Minute)
	return a, err
}
