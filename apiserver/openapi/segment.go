package openapi

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
)

// A segment is a piece of a document in compressed form. Segments are joined without decompressing them, so that a document
// of many parts of which one has changed is made quickly.
type segment struct {
	deflated []byte // DEFLATE blocks (RFC 1951) that end at a byte, none of them the last and none refers to another segment
	size     int    // uncompressed
	sum      uint32 // CRC-32 (IEEE) of the uncompressed bytes
}

// A compressor makes segments. The zero value works. It is not safe for concurrent use.
type compressor struct{ w *flate.Writer }

func (c *compressor) segment(data []byte) (segment, error) {
	var out bytes.Buffer
	if c.w == nil {
		w, err := flate.NewWriter(io.Discard, flate.DefaultCompression)
		if err != nil {
			return segment{}, err
		}
		c.w = w
	}
	c.w.Reset(&out)
	if _, err := c.w.Write(data); err != nil {
		return segment{}, err
	}
	if err := c.w.Flush(); err != nil { // ends at a byte, and begins no last block
		return segment{}, err
	}
	return segment{deflated: bytes.Clone(out.Bytes()), size: len(data), sum: crc32.ChecksumIEEE(data)}, nil
}

// join returns the gzip (RFC 1952) of the segments one after the other, and its uncompressed size.
func join(segments []segment) (zipped []byte, size int) {
	const unknown = 255 // operating system
	length := 10 + 5 + 8
	for _, s := range segments {
		length += len(s.deflated)
	}
	zipped = append(make([]byte, 0, length), 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, unknown)
	sum := uint32(0)
	for _, s := range segments {
		zipped = append(zipped, s.deflated...)
		sum = joinedSum(sum, s.sum, s.size)
		size += s.size
	}
	zipped = append(zipped, 1, 0, 0, 0xff, 0xff) // the last block: stored, of no bytes
	zipped = binary.LittleEndian.AppendUint32(zipped, sum)
	return binary.LittleEndian.AppendUint32(zipped, uint32(size)), size // RFC 1952: modulo 2^32
}

// joinedSum returns the CRC-32 of two texts one after the other, given the sum of each and the length of the second.
//
// A sum is a polynomial over GF(2) modulo that of CRC-32, with the coefficient of x^0 in the highest bit. The first text is
// moved by 8 bits for each byte of the second, that is, its sum is multiplied by x^8 as often.
func joinedSum(first, second uint32, length int) uint32 {
	const one, x8 = 1 << 31, 1 << 23
	shift := uint32(one)
	for square := uint32(x8); length > 0; length >>= 1 {
		if length&1 == 1 {
			shift = product(shift, square)
		}
		square = product(square, square)
	}
	return product(first, shift) ^ second
}

// product multiplies two such polynomials.
func product(a, b uint32) (p uint32) {
	for ; a != 0; a <<= 1 { // from x^0 on
		if a>>31 == 1 {
			p ^= b
		}
		overflow := b & 1 // x^31, which becomes x^32
		if b >>= 1; overflow == 1 {
			b ^= crc32.IEEE
		}
	}
	return p
}
