// An agent and a relay of the tunnel's QUIC form, written from docs/formats/tunnel.md on another QUIC stack (quic-go), so that both ends of
// ours meet something that is not ours. Prints one JSON line when it is ready.
//
//	quic_peer agent --relay HOST:PORT --ca FILE --suffix NAME [--legacy] [--wide]   ends TLS and answers HTTP requests with their body
//	quic_peer relay --certificate FILE --key FILE [--legacy]                        carries each TCP connection to the agent that dials it
//
// --wide makes the ClientHello too large for one packet.
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	quic "github.com/lucas-clemente/quic-go"
)

const (
	protocolName = "pocketfleet/1"
	mostItem     = 65536
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "quic_peer:", err)
		os.Exit(1)
	}
}

func say(value any) {
	text, err := json.Marshal(value)
	check(err)
	fmt.Println(string(text))
}

// Items of the control stream.

func writeItem(stream io.Writer, item []byte) error {
	_, err := stream.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(item))), item...))
	return err
}

func readItem(stream io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(stream, size[:]); err != nil {
		return nil, err
	}
	if count := binary.BigEndian.Uint32(size[:]); count <= mostItem {
		item := make([]byte, count)
		_, err := io.ReadFull(stream, item)
		return item, err
	}
	return nil, errors.New("an item of more than 65,536 bytes")
}

// Addresses and proofs.

func idOf(key *ecdsa.PublicKey) string {
	digest := sha256.Sum256(elliptic.MarshalCompressed(elliptic.P256(), key.X, key.Y))
	return hex.EncodeToString(digest[:8])
}

func proofDigest(domain string, binding []byte) []byte {
	text := []byte(domain)
	if binding != nil {
		text = append([]byte("pocketfleet tunnel proof 1\x00"+domain+"\x00"), binding...)
	}
	digest := sha256.Sum256(text)
	return digest[:]
}

// SEC 1, section 4.1.6, for the one candidate whose x is r.
func recoverKey(digest []byte, r, s *big.Int, v byte) (*ecdsa.PublicKey, error) {
	curve := elliptic.P256()
	p := curve.Params()
	if r.Sign() <= 0 || s.Sign() <= 0 || r.Cmp(p.N) >= 0 || s.Cmp(p.N) >= 0 || v > 1 {
		return nil, errors.New("the proof is out of range")
	}
	square := new(big.Int).Exp(r, big.NewInt(3), p.P)
	square.Sub(square, new(big.Int).Mul(big.NewInt(3), r)).Add(square, p.B).Mod(square, p.P)
	y := new(big.Int).ModSqrt(square, p.P)
	if y == nil {
		return nil, errors.New("the proof names no point")
	}
	if byte(y.Bit(0)) != v {
		y.Sub(p.P, y)
	}
	inverse := new(big.Int).ModInverse(r, p.N)
	ofPoint := new(big.Int).Mul(s, inverse)
	ofPoint.Mod(ofPoint, p.N)
	ofBase := new(big.Int).Mul(new(big.Int).SetBytes(digest), inverse)
	ofBase.Neg(ofBase).Mod(ofBase, p.N)
	ax, ay := curve.ScalarMult(r, y, ofPoint.Bytes())
	bx, by := curve.ScalarBaseMult(ofBase.Bytes())
	x, y := curve.Add(ax, ay, bx, by)
	return &ecdsa.PublicKey{Curve: curve, X: x, Y: y}, nil
}

func prove(key *ecdsa.PrivateKey, domain string, binding []byte) ([]byte, error) {
	digest := proofDigest(domain, binding)
	r, s, err := ecdsa.Sign(rand.Reader, key, digest)
	if err != nil {
		return nil, err
	}
	order := elliptic.P256().Params().N
	if s.Cmp(new(big.Int).Rsh(order, 1)) > 0 {
		s.Sub(order, s)
	}
	for v := byte(0); v < 2; v++ {
		if found, err := recoverKey(digest, r, s, v); err == nil && found.Equal(&key.PublicKey) {
			proof := make([]byte, 65)
			r.FillBytes(proof[:32])
			s.FillBytes(proof[32:64])
			proof[64] = v
			return proof, nil
		}
	}
	return nil, errors.New("the key cannot be recovered")
}

func checkProof(domain string, proof, binding []byte) error {
	if len(proof) != 65 {
		return fmt.Errorf("a proof of %d bytes", len(proof))
	}
	key, err := recoverKey(proofDigest(domain, binding), new(big.Int).SetBytes(proof[:32]), new(big.Int).SetBytes(proof[32:64]), proof[64])
	if err != nil {
		return err
	}
	if id, _, _ := strings.Cut(domain, "."); idOf(key) != id {
		return errors.New("the proof is not by the key of the domain")
	}
	return nil
}

func selfSigned(key *ecdsa.PrivateKey, name string) (tls.Certificate, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func bindingOf(connection quic.Connection, legacy bool) ([]byte, error) {
	if legacy {
		return nil, nil
	}
	state := connection.ConnectionState().TLS
	return state.ExportKeyingMaterial("EXPORTER-pocketfleet-tunnel", nil, 32)
}

// A stream as a connection, for TLS and HTTP.
type streamConnection struct {
	quic.Stream
	of quic.Connection
}

func (stream streamConnection) LocalAddr() net.Addr  { return stream.of.LocalAddr() }
func (stream streamConnection) RemoteAddr() net.Addr { return stream.of.RemoteAddr() }
func (stream streamConnection) Close() error {
	stream.CancelRead(0)
	return stream.Stream.Close()
}

func agent(arguments []string) {
	flags := flag.NewFlagSet("agent", flag.ExitOnError)
	relay := flags.String("relay", "", "")
	ca := flags.String("ca", "", "")
	suffix := flags.String("suffix", "", "")
	legacy := flags.Bool("legacy", false, "")
	wide := flags.Bool("wide", false, "")
	check(flags.Parse(arguments))

	roots := x509.NewCertPool()
	authority, err := os.ReadFile(*ca)
	check(err)
	roots.AppendCertsFromPEM(authority)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	domain := idOf(&key.PublicKey) + "." + *suffix
	of_agent, err := selfSigned(key, "agent")
	check(err)
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{of_agent}}
	if !*legacy {
		config.NextProtos = []string{protocolName}
	}
	for i := 0; *wide && i < 12; i++ {
		config.NextProtos = append(config.NextProtos, fmt.Sprintf("%0120d", i))
	}
	connection, err := quic.DialAddr(*relay, config, &quic.Config{KeepAlivePeriod: 5 * time.Second, MaxIncomingStreams: 1000})
	check(err)
	binding, err := bindingOf(connection, *legacy)
	check(err)
	control, err := connection.OpenStreamSync(context.Background())
	check(err)
	proof, err := prove(key, domain, binding)
	check(err)
	for _, item := range [][]byte{[]byte(domain), proof, nil} {
		check(writeItem(control, item))
	}
	if *legacy {
		check(control.Close())
		_, err = io.ReadAll(control)
		check(err)
	} else {
		word, err := readItem(control)
		check(err)
		if string(word) != "ready" {
			check(fmt.Errorf("the relay said %q where ready was expected", word))
		}
	}

	of_domain, err := selfSigned(key, domain)
	check(err)
	pemText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of_domain.Certificate[0]})
	say(map[string]any{"domain": domain, "certificate": string(pemText)})
	for {
		stream, err := connection.AcceptStream(context.Background())
		check(err)
		go func() {
			user := tls.Server(streamConnection{stream, connection}, &tls.Config{Certificates: []tls.Certificate{of_domain}})
			defer user.Close()
			call, err := http.ReadRequest(bufio.NewReader(user))
			if err != nil {
				return
			}
			fmt.Fprintf(user, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n", call.ContentLength)
			io.Copy(user, call.Body)
		}()
	}
}

func relay(arguments []string) {
	flags := flag.NewFlagSet("relay", flag.ExitOnError)
	certificate := flags.String("certificate", "", "")
	key := flags.String("key", "", "")
	legacy := flags.Bool("legacy", false, "")
	check(flags.Parse(arguments))

	own, err := tls.LoadX509KeyPair(*certificate, *key)
	check(err)
	config := &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert}
	if !*legacy {
		config.NextProtos = []string{protocolName}
	}
	agents, err := quic.ListenAddr("127.0.0.1:0", config, &quic.Config{KeepAlivePeriod: 5 * time.Second})
	check(err)
	users, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	say(map[string]any{"agents": agents.Addr().(*net.UDPAddr).Port, "users": users.Addr().(*net.TCPAddr).Port})

	connection, err := agents.Accept(context.Background())
	check(err)
	binding, err := bindingOf(connection, *legacy)
	check(err)
	control, err := connection.AcceptStream(context.Background())
	check(err)
	var items [3][]byte
	for i := range items {
		items[i], err = readItem(control)
		check(err)
	}
	domain := string(items[0])
	check(checkProof(domain, items[1], binding))
	if *legacy {
		control.Close() // the agent may have let go of it already
	} else {
		check(writeItem(control, []byte("ready")))
	}
	say(map[string]any{"domain": domain, "key_authorisation_bytes": len(items[2])})
	for {
		user, err := users.Accept()
		check(err)
		stream, err := connection.OpenStreamSync(context.Background())
		check(err)
		go func() {
			io.Copy(stream, user)
			stream.Close()
		}()
		go func() {
			io.Copy(user, stream)
			user.Close()
		}()
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		agent(os.Args[2:])
	} else if len(os.Args) > 1 && os.Args[1] == "relay" {
		relay(os.Args[2:])
	} else {
		check(errors.New("agent or relay?"))
	}
}
