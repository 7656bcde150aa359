# shellcheck shell=bash
# Debian systems of their own; sourced after common.sh, and needs root.
#
# A system lives in a directory below the work directory.  What runs in it has
# its own processes and mounts, all of which end with the command.

# Make a system of a release.  Further arguments are packages it begins with.
# DEBIAN_MIRROR chooses the mirror; without it, debootstrap's own.
make_chroot() {
	local release=$1 root=$2 include=
	shift 2
	[ $# = 0 ] || include=--include=$(IFS=, && echo "$*")
	as_root debootstrap --variant=minbase ${include:+"$include"} "$release" "$root" \
		${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$root.log" 2>&1 </dev/null ||
		{ cat "$root.log" >&2; die "could not make a system of $release"; }
	# A mirror can be older than the date to which its list says it is valid.
	echo 'Acquire::Check-Valid-Until "false";' |
		as_root tee "$root/etc/apt/apt.conf.d/90mirror" >/dev/null
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
