package netfs

import "testing"

func TestMagicNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		magic  int64
		name   string
		remote bool
	}{
		{0x6969, "nfs", true},
		{0xFF534D42, "cifs", true},
		{-0xACB2BE, "cifs", true}, // 0xFF534D42 with its sign extended
		{0x65735546, "fuse", true},
		{0xEF53, "", false},     // ext4
		{0x01021994, "", false}, // tmpfs, one digit beside 9p
		{0x794C7630, "", false}, // overlayfs
	} {
		if name, remote := byMagic(c.magic); name != c.name || remote != c.remote {
			t.Errorf("byMagic(%#x) = %q, %v; want %q, %v", c.magic, name, remote, c.name, c.remote)
		}
	}
}
