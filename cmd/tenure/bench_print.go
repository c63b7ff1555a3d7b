package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-project/tenure/cmd/tenure/internal/bench"
	"github.com/tenure-project/tenure/cmd/tenure/internal/prices"
	"github.com/tenure-project/tenure/store"
)

// benchJSON is the shape of bench store --json.
type benchJSON struct {
	Schema      int         `json:"schema"`
	Namespace   string      `json:"namespace"`
	Store       string      `json:"store"`
	Driver      string      `json:"driver"`
	Rounds      int         `json:"rounds"`
	Concurrency int         `json:"concurrency"`
	LimitMS     int64       `json:"limit_ms"`
	TookMS      int64       `json:"took_ms"`
	Ended       string      `json:"ended"`
	KeysLeft    int         `json:"keys_left"`
	KeyPrefix   string      `json:"key_prefix"`
	Steps       []benchStep `json:"steps"`
	Cost        costJSON    `json:"cost"`
}

// benchStep is one line of figures.
type benchStep struct {
	Step   string             `json:"step"`
	Count  int                `json:"count"`
	Failed int                `json:"failed"`
	P50    float64            `json:"p50_ms"`
	P90    float64            `json:"p90_ms"`
	P99    float64            `json:"p99_ms"`
	Max    float64            `json:"max_ms"`
	Total  float64            `json:"requests"`
	Calls  map[string]float64 `json:"by_operation"`
}

// costJSON is what a lease and a waiter cost in a month.
type costJSON struct {
	TTLMS      int64      `json:"ttl_ms"`
	RenewMS    int64      `json:"renew_every_ms"`
	Measured   bool       `json:"measured"`
	Renewals   float64    `json:"renewals_per_month"`
	Writes     float64    `json:"writes_per_month"`
	Reads      float64    `json:"reads_per_month"`
	PerSecond  float64    `json:"requests_per_second"`
	Dollars    *float64   `json:"dollars_per_month"`
	DollarTTL  *int64     `json:"ttl_below_one_dollar_ms"`
	WaiterPoll *int64     `json:"waiter_poll_ms"`
	WaiterRead float64    `json:"waiter_reads_per_month"`
	WaiterCost *float64   `json:"waiter_dollars_per_month"`
	Price      *priceJSON `json:"price"`
}

// priceJSON is the list price that was used.
type priceJSON struct {
	Provider string  `json:"provider"`
	Region   string  `json:"region"`
	Read     string  `json:"read"`
	Writes   float64 `json:"dollars_per_million_writes"`
	Reads    float64 `json:"dollars_per_million_reads"`
}

// benchResult is everything that is printed.
type benchResult struct {
	info      store.Info
	namespace string
	flags     benchFlags
	report    bench.Report
	cost      cost
}

func (r benchResult) json() benchJSON {
	j := benchJSON{
		Schema: schema, Namespace: r.namespace, Store: r.info.Identity, Driver: r.info.Driver, Rounds: r.flags.rounds,
		Concurrency: r.flags.concurrency, LimitMS: r.flags.limit.Milliseconds(), TookMS: r.report.Took.Milliseconds(),
		Ended: endedNames[r.report.Ended], KeysLeft: r.report.Left, KeyPrefix: r.report.Prefix, Steps: []benchStep{}, Cost: r.cost.json(),
	}
	for _, s := range r.report.Steps {
		j.Steps = append(j.Steps, benchStep{
			Step: s.Name, Count: len(s.Times), Failed: s.Failed, P50: inMS(s.Times.Percentile(50)), P90: inMS(s.Times.Percentile(90)),
			P99: inMS(s.Times.Percentile(99)), Max: inMS(s.Times.Max()), Total: sum(s.Calls), Calls: s.Calls,
		})
	}
	return j
}

// endedNames are why a run ended, in the words of the command line.
var endedNames = map[string]string{bench.EndedRounds: "rounds", bench.EndedLimit: "duration", bench.EndedCaller: "signal"}

func (c cost) json() costJSON {
	j := costJSON{
		TTLMS: c.ttl.Milliseconds(), RenewMS: c.every.Milliseconds(), Measured: c.measured, Renewals: math.Round(c.average),
		Writes: math.Round(c.month.Writes), Reads: math.Round(c.month.Reads), PerSecond: math.Round(c.month.Total()/prices.Month.Seconds()*1e4) / 1e4,
		WaiterRead: math.Round(c.waiter.Month.Reads),
	}
	if c.waiter.Poll > 0 {
		j.WaiterPoll = new(c.waiter.Poll.Milliseconds())
	}
	if c.priced {
		j.Dollars, j.WaiterCost = new(cents(c.list.Dollars(c.month))), new(cents(c.list.Dollars(c.waiter.Month)))
		j.DollarTTL = new(c.underDollar.Milliseconds())
		j.Price = &priceJSON{c.list.Provider, c.list.Region, prices.Read, c.list.Writes, c.list.Reads}
	}
	return j
}

func cents(dollars float64) float64 { return math.Round(dollars*100) / 100 }

// inMS is d in milliseconds, to the microsecond.
func inMS(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }

func sum(calls map[string]float64) float64 {
	total := 0.0
	for _, n := range calls {
		total += n
	}
	return total
}

// print shows the figures, then what a lease costs.
func (r benchResult) print(w io.Writer) {
	var head table
	head.row("store", printable(r.info.Identity)+" ("+r.info.Driver+")")
	head.row("run", fmt.Sprintf("%s, %d at once, %s", endedTexts[r.report.Ended](r.flags), r.flags.concurrency, age(r.report.Took)))
	head.print(w)
	fmt.Fprintln(w)
	steps(r.report.Steps).print(w)
	fmt.Fprintln(w)
	fmt.Fprintf(w, "One lease, held for 30 days at a TTL of %v (renewed each %v, less up to 1/8 by chance):\n", r.cost.ttl, r.cost.every)
	r.cost.table().print(w)
}

var endedTexts = map[string]func(f benchFlags) string{
	bench.EndedRounds: func(f benchFlags) string { return fmt.Sprintf("%s rounds", grouped(float64(f.rounds))) },
	bench.EndedLimit: func(f benchFlags) string {
		return fmt.Sprintf("the time limit of %v came before %s rounds", f.limit, grouped(float64(f.rounds)))
	},
	bench.EndedCaller: func(f benchFlags) string {
		return fmt.Sprintf("stopped by a signal before %s rounds", grouped(float64(f.rounds)))
	},
}

// stepTexts are the names of steps for people, where they differ.
var stepTexts = map[string]string{
	bench.StepList: "list, one page", bench.StepAcquireNew: "acquire, new name", bench.StepAcquireKnown: "acquire, known name",
}

// steps is the table of figures, numbers to the right.
func steps(all []bench.Step) *table {
	rows := [][]string{{"step", "n", "p50", "p90", "p99", "max", "requests"}}
	for _, s := range all {
		name := s.Name
		if text, ok := stepTexts[name]; ok {
			name = text
		}
		row := []string{name, strconv.Itoa(len(s.Times)), "-", "-", "-", "-", "-"}
		if len(s.Times) > 0 {
			row = []string{name, row[1], brief(s.Times.Percentile(50)), brief(s.Times.Percentile(90)),
				brief(s.Times.Percentile(99)), brief(s.Times.Max()), requests(s.Calls)}
		}
		if s.Failed > 0 {
			row[6] += fmt.Sprintf("; %d failed", s.Failed)
		}
		rows = append(rows, row)
	}
	for c := 1; c < 6; c++ {
		wide := 0
		for _, r := range rows {
			wide = max(wide, width(r[c]))
		}
		for _, r := range rows {
			r[c] = strings.Repeat(" ", wide-width(r[c])) + r[c]
		}
	}
	return &table{rows}
}

// requests is the number of requests of one step, and which they are.
func requests(calls map[string]float64) string {
	var parts []string
	for _, op := range slices.Sorted(maps.Keys(calls)) {
		parts = append(parts, count(calls[op])+" "+op)
	}
	text := strings.Join(parts, " + ")
	if len(parts) > 1 {
		text = count(sum(calls)) + " = " + text
	}
	return text
}

// count is a mean number: whole where it is.
func count(n float64) string { return strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64) }

func (c cost) table() *table {
	var t table
	source := "counted here"
	if !c.measured {
		source = "as the library does; none was measured"
	}
	t.row("  requests", fmt.Sprintf("%s (%.2f a second); %s per renewal, %s", grouped(c.month.Total()), c.month.Total()/prices.Month.Seconds(), count(c.month.Total()/c.average), source))
	t.row("  money", c.money())
	t.row("  a waiter", c.waiting())
	if c.priced {
		t.row("  below $1", fmt.Sprintf("from a TTL of %v on", c.underDollar))
		for i, line := range c.price() {
			t.row([]string{"  price", ""}[min(i, 1)], line)
		}
	}
	return &t
}

func (c cost) money() string {
	switch {
	case c.priced:
		even := c.list.Dollars(c.month.Times(c.even / c.average))
		return fmt.Sprintf("%s a month (%s if it were renewed each %v sharp)", dollars(c.list.Dollars(c.month)), dollars(even), c.every)
	case c.billed:
		return "the price of requests is not known for this place"
	}
	return "no request price"
}

func (c cost) waiting() string {
	if c.waiter.Poll == 0 {
		return fmt.Sprintf("the store wakes it: no polling, at most one read per renewal (%s)", grouped(c.waiter.Month.Reads))
	}
	text := fmt.Sprintf("polls each %v: %s reads", c.waiter.Poll, grouped(c.waiter.Month.Reads))
	if c.priced {
		text += ", " + dollars(c.list.Dollars(c.waiter.Month)) + " a month"
	}
	return text
}

// price is the list price that was used, in two lines.
func (c cost) price() []string {
	return []string{
		fmt.Sprintf("$%.2f per million writes, $%.2f per million reads: list price of %s,", c.list.Writes, c.list.Reads, prices.Read),
		fmt.Sprintf("%s (%s); yours may differ", c.list.Provider, c.list.Region),
	}
}

func dollars(d float64) string { return fmt.Sprintf("$%.2f", d) }

// grouped is a whole number with a comma before each three digits.
func grouped(n float64) string {
	digits := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// brief is d with three digits and its unit.
func brief(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d < unit.size {
			continue
		}
		n := float64(d) / float64(unit.size)
		switch {
		case n < 10:
			return fmt.Sprintf("%.2f%s", n, unit.name)
		case n < 100:
			return fmt.Sprintf("%.1f%s", n, unit.name)
		}
		return fmt.Sprintf("%.0f%s", n, unit.name)
	}
	return d.String()
}
