package join

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A Token is a bootstrap token: its identifier, which is public, and its secret.
type Token struct{ ID, Secret string }

const tokenFormat = `\A([a-z0-9]{6})\.([a-z0-9]{16})\z`

// ParseToken reads a token in the format of Kubernetes, ID.SECRET.
func ParseToken(text string) (Token, error) {
	m := regexp.MustCompile(tokenFormat).FindStringSubmatch(text)
	if m == nil { // the text is a secret, or close to one
		return Token{}, errors.New("the bootstrap token is not of the form ID.SECRET, with 6 and 16 lower-case letters or digits")
	}
	return Token{m[1], m[2]}, nil
}

// NewToken returns a random token.
func NewToken() Token {
	return Token{word(6), word(16)}
}

// word returns so many random letters and digits.
func word(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	const fair = 256 - 256%len(letters) // bytes below it are spread evenly over the letters
	out := make([]byte, 0, n)
	for len(out) < n {
		var b [1]byte
		_, _ = rand.Read(b[:]) // never fails
		if int(b[0]) < fair {
			out = append(out, letters[int(b[0])%len(letters)])
		}
	}
	return string(out)
}

// String returns the token as ParseToken reads it.
func (t Token) String() string { return t.ID + "." + t.Secret }

// verify returns an error unless signature is that of content by the token: a detached JSON Web Signature (RFC 7515,
// appendix F), as the bootstrap signer of Kubernetes makes it.
func (t Token) verify(content, signature string) error {
	parts := strings.Split(signature, ".")
	if len(parts) != 3 || parts[1] != "" {
		return errors.New("the signature is not a detached JSON Web Signature")
	}
	var header struct {
		Algorithm string `json:"alg"`
		ID        string `json:"kid"`
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err == nil {
		err = json.Unmarshal(data, &header)
	}
	if err != nil || header.Algorithm != "HS256" || header.ID != t.ID {
		return fmt.Errorf("the signature is not one of the token %s with HS256", t.ID)
	}
	given, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return errors.New("the signature is not in base64")
	}
	mac := hmac.New(sha256.New, []byte(t.Secret))
	_, _ = mac.Write([]byte(parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(content)))) // never fails
	if !hmac.Equal(mac.Sum(nil), given) {
		return errors.New("the signature is not by this token")
	}
	return nil
}
