package priority

import "math"

// A need is how many seats a level must get, may get, and could use.
type need struct {
	least, most int
	wanted      int // seats of the requests that were executed or waited at one time, at most
}

// divide returns how many of the seats each level gets: the same fraction of the seats it wants, but no fewer
// than its least and no more than its most. The parts may sum to a little more or less than seats, because they are
// rounded.
func divide(seats int, needs []need) []int {
	sum := func(fraction float64) (n float64) {
		for _, v := range needs {
			n += v.at(fraction)
		}
		return n
	}
	low, high := 0.0, 1.0
	for sum(high) < float64(seats) && high < math.MaxInt32 {
		high *= 2
	}
	// The sum grows with the fraction: halve the interval until it is far narrower than a seat.
	for range 64 {
		if middle := (low + high) / 2; sum(middle) < float64(seats) {
			low = middle
		} else {
			high = middle
		}
	}
	parts := make([]int, len(needs))
	for i, v := range needs {
		parts[i] = int(math.Round(v.at(high)))
	}
	return parts
}

// at returns the part of a level that gets this fraction of the seats it wants. A level that wants nothing counts as
// if it wanted a thousandth of a seat, so that spare seats are divided, too.
func (n need) at(fraction float64) float64 {
	return min(max(fraction*max(float64(n.wanted), 0.001), float64(n.least)), float64(n.most))
}

// deal returns the queues that a flow uses: size different numbers below queues. Each hand is equally likely, as far as
// the bits of the hash go. It writes to hand, whose length bounds the size.
func deal(hash uint64, queues int, hand []int) []int {
	for i := range hand {
		card := int(hash % uint64(queues-i))
		hash /= uint64(queues - i)
		// The card is the card-th of the remaining ones: skip the dealt ones, which are sorted.
		at := 0
		for at < i && hand[at] <= card {
			card++
			at++
		}
		copy(hand[at+1:i+1], hand[at:i])
		hand[at] = card
	}
	return hand
}
