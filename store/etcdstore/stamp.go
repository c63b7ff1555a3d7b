package etcdstore

import (
	"bytes"
	"crypto/rand"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tenure-project/tenure/store"
)

// A value is the line "tenure/1 STAMP\n" and then the body. The stamp is fresh
// for every write.
const (
	valueMark   = "tenure/1 "
	stampLength = 26 // of rand.Text: 130 bits
	headLength  = len(valueMark) + stampLength + 1
)

// version is one state of one key.
type version struct {
	revision int64 // the ModRevision
	stamp    string
}

func (v version) mark() store.Version {
	return store.Version(strconv.FormatInt(v.revision, 10) + "." + v.stamp)
}

// parseVersion reads a mark; ok is false for one that this store never gave.
func parseVersion(mark store.Version) (v version, ok bool) {
	number, stamp, _ := strings.Cut(string(mark), ".")
	revision, err := strconv.ParseInt(number, 10, 64)
	if err != nil || revision <= 0 || strconv.FormatInt(revision, 10) != number || !isStamp(stamp) {
		return version{}, false
	}
	return version{revision, stamp}, true
}

func isStamp(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return len(s) == stampLength
}

// wrap makes the value for body, with a fresh stamp.
func wrap(body []byte) (value []byte, stamp string) {
	stamp = rand.Text()
	value = make([]byte, 0, headLength+len(body))
	value = append(value, valueMark+stamp+"\n"...)
	return append(value, body...), stamp
}

// unwrap takes a value apart.
func unwrap(value []byte) (body []byte, stamp string, ok bool) {
	if len(value) < headLength || !bytes.HasPrefix(value, []byte(valueMark)) || value[headLength-1] != '\n' {
		return nil, "", false
	}
	stamp = string(value[len(valueMark) : headLength-1])
	return value[headLength:], stamp, isStamp(stamp)
}

// conditions hold for the key at exactly version v. The stamp is compared as
// the beginning of the value: greater than the head without its line feed, and
// less than the head with the next character in its place.
func conditions(key string, v version) []*pb.Compare {
	head := valueMark + v.stamp
	return []*pb.Compare{
		{Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: v.revision}},
		{Key: []byte(key), Target: pb.Compare_VALUE, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Value{Value: []byte(head)}},
		{Key: []byte(key), Target: pb.Compare_VALUE, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_Value{Value: []byte(head + string(rune('\n'+1)))}},
	}
}

// absent holds if the key is not there.
func absent(key string) []*pb.Compare {
	return []*pb.Compare{{Key: []byte(key), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0}}}
}
