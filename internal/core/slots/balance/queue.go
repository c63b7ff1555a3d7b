package balance

// queue is a heap of hosts, the one with the greatest key first; of equal ones the first
// by name. The keys belong to the caller, who says when one has changed.
type queue struct {
	key  []int64
	heap []int
	pos  []int // by host; none when it is not in the queue
}

func newQueue(key []int64) *queue {
	q := &queue{key: key, pos: make([]int, len(key))}
	for i := range q.pos {
		q.pos[i] = none
	}
	return q
}

func (q *queue) size() int { return len(q.heap) }

func (q *queue) top() int { return q.heap[0] }

func (q *queue) add(h int) {
	q.pos[h] = len(q.heap)
	q.heap = append(q.heap, h)
	q.up(q.pos[h])
}

// fix puts a host in its place after its key has changed; one that is not in the queue
// is ignored.
func (q *queue) fix(h int) {
	if i := q.pos[h]; i != none {
		q.up(i)
		q.down(q.pos[h])
	}
}

// remove takes out a host that is in the queue.
func (q *queue) remove(h int) {
	i := q.pos[h]
	last := len(q.heap) - 1
	q.swap(i, last)
	q.heap = q.heap[:last]
	q.pos[h] = none
	if i < last {
		q.fix(q.heap[i])
	}
}

func (q *queue) before(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return q.key[a] > q.key[b] || (q.key[a] == q.key[b] && a < b)
}

func (q *queue) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.pos[q.heap[i]], q.pos[q.heap[j]] = i, j
}

func (q *queue) up(i int) {
	for i > 0 && q.before(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *queue) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(q.heap); c++ {
			if q.before(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		q.swap(i, least)
		i = least
	}
}
