# snowid: PGXS makefile
#
#	make && make install		build, and install into the server of pg_config,
#								with the programs of bin/
#	make installcheck			pg_regress, isolation and TAP suites
#	make unitcheck				the pure decisions, without a server
#	make checkver				fails unless all files name the same version
#	make portable				the edition in SQL; "make -C portable" needs no pg_config
#	make npm					the package for npm
#	make image PG=18			images for containers, as OCI layouts in image/
#	make dist					the PGXN archive
#	make deb-source				the Debian source package; both from the commit
#
# PG_CONFIG chooses the server version; COPT adds compiler options.

EXTENSION = snowid
EXTVERSION = 1.0
DATA = $(wildcard snowid--*.sql)
MODULE_big = snowid
OBJS = src/snowid.o src/next_id.o src/safe_upper_id.o src/decode.o src/base62.o \
	src/shard_of.o src/sequence.o src/seq_session.o src/reservation.o src/seq_page.o \
	src/seq_catalog.o src/seq_refusal.o src/fence.o src/citus.o src/xact_start.o \
	src/args.o src/clock.o
SRC_HEADERS = $(wildcard src/*.h)
# Nothing else is seen by other libraries, nor can a symbol of theirs take its place.
SHLIB_EXPORTS = src/exports.txt

REGRESS = install layout vectors next_id epochs set_to_id cache errors privileges catalog planner \
	shards shards_bulk shards_default shards_adopt shards_names \
	shards_privileges shard_of safe_upper_id partitions newest_rows shard_load fence
REGRESS_OPTS = --encoding=UTF8
ISOLATION = order lock advance set_default safe_upper create_partition fence_waits rename
TAP_TESTS ?= 1
PROVE_TESTS ?= t/*/*.pl

# The server's own headers have unused parameters.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter
EXTRA_CLEAN = t/unit/slot_test t/unit/situation_test t/unit/plan_test tmp_check output_iso results .built-for $(DIST) $(DEB_SOURCE) $(IMAGE)

PG_CONFIG ?= $(if $(PG),/usr/lib/postgresql/$(PG)/bin/)pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifneq ($(filter-out portable npm checkver dist deb-source,$(or $(MAKECMDGOALS),all)),)
$(if $(PGXS),,$(error $(PG_CONFIG) is not there: install postgresql-server-dev-$(or $(PG),NN), or set PG_CONFIG))

# What was built for another server version is built anew.
BUILT_FOR := $(shell v="$$($(PG_CONFIG) --version)"; [ "$$(cat .built-for 2>/dev/null)" = "$$v" ] || echo "$$v" >.built-for)
endif
include $(PGXS)

.built-for:
	@$(PG_CONFIG) --version >$@
$(OBJS) $(OBJS:.o=.bc): $(SRC_HEADERS) .built-for

# The client programs have makefiles of their own: PGXS builds one thing at a time.
PROGRAMS = move each fleet
PROGRAM_TARGETS = $(foreach target,all install uninstall clean,$(PROGRAMS:%=%-$(target)))
all: $(PROGRAMS:%=%-all)
$(PROGRAMS:%=%-all): .built-for
install: $(PROGRAMS:%=%-install)
uninstall: $(PROGRAMS:%=%-uninstall)
clean: $(PROGRAMS:%=%-clean)
$(PROGRAMS:%=%-install): %-install: %-all
$(PROGRAM_TARGETS):
	$(MAKE) -C bin/$(firstword $(subst -, ,$@)) $(lastword $(subst -, ,$@)) PG_CONFIG=$(PG_CONFIG)

# PGXS installs no manual pages.
man1dir = $(DESTDIR)$(mandir)/man1

install: install-programs
install-programs: $(PROGRAMS:%=%-install)
	$(MKDIR_P) '$(man1dir)'
	$(INSTALL_DATA) $(wildcard doc/snowid-*.1) '$(man1dir)/'

uninstall: uninstall-man
uninstall-man:
	rm -f $(PROGRAMS:%='$(man1dir)/snowid-%.1')

unitcheck: t/unit/slot_test t/unit/situation_test t/unit/plan_test
	./t/unit/slot_test
	./t/unit/situation_test
	./t/unit/plan_test
	./t/unit/situation_test print | diff doc/situations.txt -

t/unit/slot_test: t/unit/slot_test.c $(SRC_HEADERS)
	$(CC) $(CFLAGS) $(PG_CFLAGS) -DFRONTEND -Isrc -I$(shell $(PG_CONFIG) --includedir-server) -o $@ $<

t/unit/situation_test: t/unit/situation_test.c bin/move/situation.c bin/move/situation.h
	$(CC) $(CFLAGS) $(PG_CFLAGS) -DFRONTEND -Ibin/move -I$(shell $(PG_CONFIG) --includedir-server) -o $@ $< bin/move/situation.c

t/unit/plan_test: t/unit/plan_test.c bin/fleet/plan.c bin/fleet/plan.h
	$(CC) $(CFLAGS) $(PG_CFLAGS) -DFRONTEND -Ibin/fleet -I$(shell $(PG_CONFIG) --includedir-server) -o $@ $< bin/fleet/plan.c -lm

portable:
	$(MAKE) -C portable

npm:
	cd npm && npm pack --silent

# Into a directory of its own, too.
IMAGE = image
image: all
	scripts/image $(PG_CONFIG) $(IMAGE)

checkver:
	@scripts/checkver $(EXTVERSION)

DIST = snowid-$(EXTVERSION).0.zip
dist: checkver
	git archive --format=zip --prefix=$(basename $(notdir $(DIST)))/ -o $(DIST) HEAD

# Into a directory of its own.  For dpkg-source, what is in debian/ is not upstream's.
DEB_SOURCE = deb-source
deb-source: checkver
	rm -rf $(DEB_SOURCE)
	mkdir -p $(DEB_SOURCE)/snowid-$(EXTVERSION).0
	git archive --format=tar.gz --prefix=snowid-$(EXTVERSION).0/ \
		-o $(DEB_SOURCE)/snowid_$(EXTVERSION).0.orig.tar.gz HEAD ':!debian'
	git archive HEAD | tar -C $(DEB_SOURCE)/snowid-$(EXTVERSION).0 -xf -
	cd $(DEB_SOURCE) && dpkg-source -b snowid-$(EXTVERSION).0
	rm -r $(DEB_SOURCE)/snowid-$(EXTVERSION).0

.PHONY: install-programs uninstall-man unitcheck portable npm image checkver dist deb-source \
	$(PROGRAM_TARGETS)
