package simulation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// object is what the API stores.
type object interface {
	metav1.Object
	metav1.ObjectMetaAccessor
}

// feed is an informer that is shown changes by hand, one at a time: it lags behind the API by those that are
// pending.
type feed struct {
	// SharedIndexInformer is nil: what is not overridden is not for here.
	cache.SharedIndexInformer
	indexer   cache.Indexer
	transform cache.TransformFunc
	// watches tells which objects the watch selects, in the state they are in.
	watches  func(object) bool
	handlers []cache.ResourceEventHandler
	pending  []change
}

// change is an object as it was after a change, or when it was deleted.
type change struct {
	object  object
	deleted bool
}

func newFeed(indexer cache.Indexer, transform cache.TransformFunc, watches func(object) bool) *feed {
	return &feed{indexer: indexer, transform: transform, watches: watches}
}

// show delivers the oldest pending change.
func (f *feed) show() {
	c := f.pending[0]
	f.pending[0] = change{}
	f.pending = f.pending[1:]
	if len(f.pending) == 0 {
		f.pending = nil
	}
	f.put(c.object, !c.deleted && f.watches(c.object), c.deleted)
}

// put brings the store to what the watch says of one object, and tells the handlers.
func (f *feed) put(o object, selected, deleted bool) {
	old, known, _ := f.indexer.Get(o)
	switch {
	case selected && known:
		now := f.transformed(o)
		must(f.indexer.Update(now))
		for _, h := range f.handlers {
			h.OnUpdate(old, now)
		}
	case selected:
		now := f.transformed(o)
		must(f.indexer.Add(now))
		for _, h := range f.handlers {
			h.OnAdd(now, false)
		}
	case known:
		must(f.indexer.Delete(old))
		last := old // an object that is no longer selected is shown as it was
		if deleted {
			last = f.transformed(o)
		}
		for _, h := range f.handlers {
			h.OnDelete(last)
		}
	}
}

// relist is a watch that broke and starts again with what there is: everything in between was missed.
func (f *feed) relist(now []object) {
	f.pending = nil
	listed := map[string]bool{}
	for _, o := range now {
		if !f.watches(o) {
			continue
		}
		key := keyOf(o)
		listed[key] = true
		if old, known, _ := f.indexer.GetByKey(key); known && accessor(old).GetResourceVersion() == o.GetResourceVersion() {
			continue
		}
		f.put(o, true, false)
	}
	keys := f.indexer.ListKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if listed[key] {
			continue
		}
		old, _, _ := f.indexer.GetByKey(key)
		must(f.indexer.Delete(old))
		for _, h := range f.handlers {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: key, Obj: old})
		}
	}
}

func (f *feed) transformed(o object) any {
	if f.transform == nil {
		return o
	}
	now, err := f.transform(o)
	must(err)
	return now
}

func keyOf(o any) string {
	key, err := cache.MetaNamespaceKeyFunc(o)
	must(err)
	return key
}

func accessor(o any) metav1.Object {
	a, err := meta.Accessor(o)
	must(err)
	return a
}

// must panics on an error that the simulation itself would have caused.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The following implement cache.SharedIndexInformer as far as it is used.

func (f *feed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handlers = append(f.handlers, h)
	return registration{}, nil
}

func (f *feed) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return f.AddEventHandler(h)
}

func (f *feed) GetStore() cache.Store                            { return f.indexer }
func (f *feed) GetIndexer() cache.Indexer                        { return f.indexer }
func (f *feed) AddIndexers(indexers cache.Indexers) error        { return f.indexer.AddIndexers(indexers) }
func (f *feed) SetTransform(transform cache.TransformFunc) error { f.transform = transform; return nil }
func (f *feed) HasSynced() bool                                  { return true }
func (f *feed) RunWithContext(context.Context)                   {}

// registration is that of a handler, which is always up to date with its feed.
type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }
