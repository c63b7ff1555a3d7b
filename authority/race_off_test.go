//go:build !race

package authority

// everyNth thins out the long tables where each case costs several times as much.
const everyNth = 1
