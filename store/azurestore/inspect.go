package azurestore

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/tenure-project/tenure/store"
)

// Inspect looks for settings of account and container that make leases costly
// or impossible, and returns a sentence for each. It reads only, and does what
// the rights allow: what it may not see is a sentence too. It sends four
// requests. The error is that of an ended context or a closed store.
//
// An account with a hierarchical namespace, or a container whose blobs cannot
// be changed, is found by it before the first record is written.
func (s *Store) Inspect(ctx context.Context) ([]string, error) {
	c, err := s.begin(ctx, opInspect, "")
	if err != nil {
		return nil, err
	}
	defer c.end()
	var all []string
	for _, look := range []func() ([]string, error){c.lookAtAccount, c.lookAtContainer, c.lookAtService, c.lookAtVersions} {
		found, err := look()
		if ctxErr := store.CtxErr(c.ctx, s.identity, opInspect, ""); ctxErr != nil {
			return all, ctxErr
		}
		if err != nil {
			found = []string{fmt.Sprintf("not seen: %v", err)}
		}
		all = append(all, found...)
	}
	return all, nil
}

// ask runs one request of Inspect and returns its error with a meaning.
func (c *call) ask(what, right string, do func(ctx context.Context) error) error {
	x := c.exchange()
	defer x.done()
	c.need = right
	err := do(x.ctx)
	switch {
	case x.resp == nil:
		return fmt.Errorf("%s: %w", what, c.noAnswer(x, err, false))
	case x.resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %w", what, c.refusal(c.answer(x, err), false))
	case err != nil:
		return fmt.Errorf("%s: the answer makes no sense", what)
	}
	return nil
}

func (c *call) lookAtAccount() (found []string, err error) {
	err = c.ask("the kind of account", needAccount, func(ctx context.Context) error {
		r, err := c.s.container.GetAccountInfo(ctx, nil)
		if yes(r.IsHierarchicalNamespaceEnabled) {
			found = append(found, hierarchical)
		}
		if sku := deref(r.SKUName); strings.Contains(string(sku), "GRS") || strings.Contains(string(sku), "GZRS") {
			found = append(found, fmt.Sprintf("the account is replicated to another region (%s), which lags behind: after a fail-over run `tenure jump` above the highest token ever seen", sku))
		}
		return err
	})
	return found, err
}

func (c *call) lookAtContainer() (found []string, err error) {
	err = c.ask("the container", needContainer, func(ctx context.Context) error {
		r, err := c.s.container.GetProperties(ctx, nil)
		if yes(r.HasImmutabilityPolicy) || yes(r.HasLegalHold) {
			found = append(found, "the container has an immutability policy or a legal hold: records cannot be renewed in it")
		}
		if yes(r.IsImmutableStorageWithVersioningEnabled) {
			found = append(found, "the container has version-level immutability: each renewal stays as a version, and a default policy forbids to remove it")
		}
		if p := deref(r.BlobPublicAccess); p != "" {
			found = append(found, fmt.Sprintf("the container is public (%s): everybody can read who holds what", p))
		}
		return err
	})
	return found, err
}

func (c *call) lookAtService() (found []string, err error) {
	if c.s.service == nil {
		return []string{"not seen: soft delete, as the program gave a client for the container only"}, nil
	}
	err = c.ask("soft delete", needService, func(ctx context.Context) error {
		r, err := c.s.service.GetProperties(ctx, &service.GetPropertiesOptions{})
		if p := r.DeleteRetentionPolicy; p != nil && yes(p.Enabled) {
			found = append(found, fmt.Sprintf("soft delete keeps every renewal for %d days and bills it: 28,800 of them a day for a lease renewed each 3 s", deref(p.Days)))
		}
		return err
	})
	return found, err
}

// lookAtVersions looks at a record, since only blobs show to a data-plane caller
// whether old versions are kept.
func (c *call) lookAtVersions() ([]string, error) {
	const kept = "the account keeps old versions: each renewal stays as one and is billed; add a lifecycle rule that deletes them after a day"
	if c.s.versioned.Load() {
		return []string{kept}, nil
	}
	keys, err := (&listing{s: c.s}).page(c.ctx)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	versioned := false
	err = c.ask("old versions", opGet, func(ctx context.Context) error {
		r, err := c.s.blob(keys[0]).GetProperties(ctx, nil)
		versioned = deref(r.VersionID) != ""
		return err
	})
	if versioned {
		return []string{kept}, nil
	}
	return nil, err
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func yes(p *bool) bool { return deref(p) }
