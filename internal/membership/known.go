package membership

import "github.com/tenure-project/tenure/internal/core/identity"

// Known is the evidence that o is over if this process has found it before, nil
// otherwise. It asks nobody.
func (i *Identities) Known(node string, o identity.Owner) *Evidence {
	return i.known(start{node, o})
}
