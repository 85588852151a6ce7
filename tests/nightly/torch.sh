#!/bin/bash
# torch from the distribution's own archive (a CPU build: 150 MB to fetch, 650 MB unpacked) in a folder of its own, and
# FOLDER/python, which runs Python with it. Needs apt, no root; nothing of the machine is changed. The wheels of the
# Python index are CUDA builds of 2.9 GB.
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ ! -x "$folder/python" ] || exit 0

command -v apt-get >/dev/null || { echo "torch is taken from the archive of Debian or Ubuntu: no apt-get here" >&2; exit 1; }
mkdir -p "$folder/archive" # what a run that was broken off has fetched is fetched again
apt-get install --simulate --no-install-recommends python3-torch | awk '/^Inst/{print $2}' >"$folder/packages"
[ -s "$folder/packages" ] || echo python3-torch >"$folder/packages" # all of it is installed
(cd "$folder/archive" && xargs apt-get -qq download <"$folder/packages")
for package in "$folder/archive"/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -r "$folder/archive"

cat >"$folder/.python" <<'END'
#!/bin/bash
root=$(cd "$(dirname "$0")" && pwd)/root
machine=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo "$(uname -m)-linux-gnu")
libraries=$root/usr/lib:$root/usr/lib/$machine:$root/lib/$machine
export LD_LIBRARY_PATH=$libraries:$root/usr/lib/$machine/blas:$root/usr/lib/$machine/lapack
export PYTHONPATH=$root/usr/lib/python3/dist-packages${PYTHONPATH:+:$PYTHONPATH}
exec /usr/bin/python3 "$@"
END
chmod +x "$folder/.python"
"$folder/.python" -c 'import torch.distributed as d; assert d.is_available()'
mv "$folder/.python" "$folder/python" # last: only what works is there
