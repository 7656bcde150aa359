# shellcheck shell=bash
# Debian systems of their own; sourced after common.sh, and needs root.
#
# A system lives in a directory below the work directory.  What runs in it has
# its own processes and mounts, all of which end with the command.

# Make a system of a release.  Further arguments are packages it begins with.
# DEBIAN_MIRROR and UBUNTU_MIRROR choose the mirrors; without them, debootstrap's
# own.  If SYSTEMS names a directory, a system of each release is kept there, to
# be copied.
make_chroot() {
	local release=$1 root=$2
	shift 2
	if [ -n "${SYSTEMS:-}" ]; then
		(
			flock 9
			if [ ! -d "$SYSTEMS/$release" ]; then
				bootstrap "$release" "$SYSTEMS/$release.new"
				as_root mv "$SYSTEMS/$release.new" "$SYSTEMS/$release"
			fi
		) 9>"$SYSTEMS/$release.lock" || exit 1
		copy_chroot "$SYSTEMS/$release" "$root"
	else
		bootstrap "$release" "$root"
	fi
	[ $# = 0 ] || install_in_chroot "$root" "$@"
}

# A release's smallest system, with the list of its packages.
bootstrap() {
	local release=$1 root=$2 maker=$2.maker
	if [ "$release" = noble ]; then
		# Ubuntu 24.04: Debian 13 knows how to make it, and has Ubuntu's keys.
		make_chroot trixie "$maker" debootstrap ubuntu-keyring
		in_chroot "$maker" debootstrap --variant=minbase --components=main,universe noble /noble \
			${UBUNTU_MIRROR:+"$UBUNTU_MIRROR"} >"$root.log" 2>&1 </dev/null ||
			{ cat "$root.log" >&2; die "could not make a system of $release"; }
		as_root mv "$maker/noble" "$root"
		as_root rm -rf "$maker"
	else
		as_root debootstrap --variant=minbase "$release" "$root" \
			${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$root.log" 2>&1 </dev/null ||
			{ cat "$root.log" >&2; die "could not make a system of $release"; }
	fi
	# A mirror can be older than the date to which its list says it is valid.
	echo 'Acquire::Check-Valid-Until "false";' |
		as_root tee "$root/etc/apt/apt.conf.d/90mirror" >/dev/null
	in_chroot "$root" apt-get -qq update >"$root.log" 2>&1 </dev/null ||
		{ cat "$root.log" >&2; die "$release has no list of packages"; }
}

# Install packages in a system.
install_in_chroot() {
	local root=$1 log=$1.log
	shift
	in_chroot "$root" apt-get -qqy --no-install-recommends install "$@" >"$log" 2>&1 </dev/null ||
		{ cat "$log" >&2; die "could not install: $*"; }
}

# Let the headers of these versions do without the compilers of LLVM that they depend on,
# and that we build without: unpacking them takes longer than all else.
without_llvm() {
	local root=$1 package fake=$1.fake
	shift
	for package in $(in_chroot "$root" apt-cache depends "${@/#/postgresql-server-dev-}" |
		sed -nE 's/^ *Depends: ((clang|llvm)-.*)/\1/p' | sort -u); do
		mkdir -p "$fake/DEBIAN"
		printf '%s\n' "Package: $package" 'Version: 1:99' 'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \
			'Description: stands in for a compiler' >"$fake/DEBIAN/control"
		dpkg-deb --build --root-owner-group "$fake" "$fake.deb"
		as_root mv "$fake.deb" "$root/fake.deb"
		in_chroot "$root" dpkg -i /fake.deb
	done
}

# Run a command in a system, as root.
in_chroot() {
	local root=$1
	shift
	# shellcheck disable=SC2016
	as_root unshare --mount --ipc --pid --fork --kill-child sh -euc '
		root=$1
		shift
		mount -t proc proc "$root/proc"
		mount -t tmpfs tmpfs "$root/dev/shm"
		exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
	' sh "$root" "$@"
}

# Copy a system, with what has been installed in it.
copy_chroot() { as_root cp -a "$1" "$2"; }

# Put the tree into a system, as /snowid.
# shellcheck disable=SC2154
tree_into_chroot() { as_root cp -r "$work/tree" "$1/snowid"; }
