package main

import (
	"context"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/stores"
)

// cutDriver opens cut:?on=URL&when=FILE: the store at URL, which does not answer
// this process while FILE exists. Another process can use that store at the same
// time, under its own URL.
func cutDriver() store.Driver {
	return store.Driver{Scheme: "cut", Open: func(ctx context.Context, u *url.URL) (store.Store, error) {
		inner, _, err := tenure.OpenStore(ctx, u.Query().Get("on"), tenure.WithDrivers(stores.All()...))
		if err != nil {
			return nil, err
		}
		file := u.Query().Get("when")
		s := &cutStore{quit: make(chan struct{})}
		s.Store = faultstore.New(inner, faultstore.Options{Trace: func(faultstore.Event) { s.follow(file) }})
		s.over.Go(func() { s.watch(file) })
		return s, nil
	}}
}

// cutStore is a store whose link follows a file: looked at before every call,
// and every now and then for the calls that are under way.
type cutStore struct {
	*faultstore.Store
	quit chan struct{}
	over sync.WaitGroup
}

func (s *cutStore) follow(file string) {
	if _, err := os.Stat(file); err == nil {
		s.SetLink(faultstore.Cut)
	} else {
		s.SetLink(faultstore.Up)
	}
}

// watch polls the file, which another process makes and removes.
func (s *cutStore) watch(file string) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.follow(file)
		case <-s.quit:
			return
		}
	}
}

func (s *cutStore) Close() error {
	close(s.quit)
	s.over.Wait()
	return s.Store.Close()
}

// cutURL is the URL of the store at inner as a process sees it that is cut off
// while file exists.
func cutURL(inner, file string) string {
	return "cut:?" + url.Values{"on": {inner}, "when": {file}}.Encode()
}
