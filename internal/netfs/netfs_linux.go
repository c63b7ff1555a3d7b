package netfs

import "syscall"

// remoteMagic are the file-system numbers of statfs(2) whose files other
// machines can write, or whose locks a user program may not keep.
var remoteMagic = map[uint32]string{
	0x6969:     "nfs",
	0x517B:     "smb",
	0xFF534D42: "cifs",
	0xFE534D42: "smb2",
	0x01021997: "9p",
	0x00C36400: "ceph",
	0x5346414F: "afs",
	0x6B414653: "kafs",
	0x73757245: "coda",
	0x564C:     "ncp",
	0x0BD00BD0: "lustre",
	0x47504653: "gpfs",
	0x7461636F: "ocfs2",
	0x01161970: "gfs2",
	0x19830326: "fhgfs",
	0x786F4256: "vboxsf",
	0x65735546: "fuse",
	0xBACBACBC: "vmhgfs",
}

func remoteFS(path string) (string, bool, error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(path, &st)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return "", false, err
		}
		name, remote := byMagic(int64(st.Type))
		return name, remote, nil
	}
}

// byMagic looks a number up by its low 32 bits: some systems extend its sign.
func byMagic(magic int64) (name string, remote bool) {
	name, remote = remoteMagic[uint32(magic)]
	return name, remote
}
