#!/bin/bash
# Installs the Debian packages that the embedded cluster, the images and the demo require; lists them if not run by root.
# Does nothing if all are installed.
set -eu

packages=(
  busybox-static             # the boxes' sandbox image, the boot checks' archives
  buildah                    # builds the images
  containerd                 # in every box, with runc
  containernetworking-plugins
  debian-archive-keyring     # what packages of kernels and drivers are verified with
  dpkg                       # dpkg-deb unpacks kernels
  e2fsprogs                  # mke2fs writes the disk of virtual nodes
  gcc                        # the first process of a boot check, linked statically with libc6-dev
  gpg                        # signs the small archive that the tests make, by its agent
  gpg-agent
  iproute2
  iptables                   # used by the CNI plugins
  libc6-dev
  mmdebstrap                 # base image, and that of virtual nodes, from the machine's own archive
  mount
  openssl                    # the cluster's certificates
  qemu-system-x86            # boot checks of driver images, virtual nodes
  qemu-utils                 # qemu-img: a disk for each virtual node
  runc
  util-linux                 # unshare, nsenter
  zstd                       # tar's, for the layers of images
)

missing=()
for package in "${packages[@]}"; do
  case "$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null)" in
    installed) ;;
    *) missing+=("$package") ;;
  esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "These Debian packages are missing; as root: apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}" >&2
# a policy that prevents the start of services: boxes run their own containerd, and that of the machine is not used
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install -y --no-install-recommends "${missing[@]}"
