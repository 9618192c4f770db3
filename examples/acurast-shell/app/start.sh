#!/bin/sh
# Entrypoint of the deployment: serves the model of this folder on loopback and asks the phone for a tunnel to it.
# POCKETFLEET_KEY_SHA256: SHA-256 of the key that callers send (hex), from `pocketfleet key`; without one nothing is served, since the
# tunnel is public. TUNNEL_KEY: base64 of a P-256 key in PKCS #8, which gives the address; empty: the phone makes one.
set -eu
cd "$(dirname "$0")"
PORT=8080

[ -n "${POCKETFLEET_KEY_SHA256:-}" ] || { echo "start.sh: POCKETFLEET_KEY_SHA256 is not set" >&2; exit 2; }
umask 077
echo "sha256:$POCKETFLEET_KEY_SHA256 deployer" >keys.txt

package=$(ls -d pocketfleet-*-linux-arm64 | head -1)
model=$(ls ./*.manifest.json "$package"/models/*.gguf 2>/dev/null | head -1)
profiles=$(ls ./*.profile.json 2>/dev/null || true)
set -- serve "$model" --port "$PORT" --api-key-file keys.txt
for profile in $profiles; do set -- "$@" --profile "$profile"; done
"./$package/pocketfleet" "$@" &
server=$!
trap 'kill "$server"' TERM INT

# One JSON-RPC request a connection, on an abstract Unix socket, ended by a line feed.
bridge() {
  perl -MIO::Socket::UNIX -e '
    my $socket = IO::Socket::UNIX->new(Peer => "\0" . $ENV{BRIDGE_SOCKET}) or die "start.sh: no bridge: $!\n";
    print $socket $ARGV[0], "\n"; $socket->flush; print scalar <$socket>;' "$1"
}
if [ -n "${BRIDGE_SOCKET:-}" ]; then
  key=""
  [ -z "${TUNNEL_KEY:-}" ] || key=",\"primaryKey\":{\"algorithm\":\"Secp256r1\",\"bytes\":\"$TUNNEL_KEY\"}"
  bridge "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tunnel_start\",\"params\":[{\"serverAddrs\":[\"relay-1.mainnet.acurast.com:4433\"],\"domainSuffix\":\"acu.run\",\"localAddr\":\"127.0.0.1:$PORT\"$key}]}"
fi
wait "$server"
