# Makes C of an .sql file, so that long queries are read as SQL, and psql can run
# them.  What stands there are psql's own commands:
#
#	\echo NAME					a check, or a query, begins
#	\c :source					what follows, to the next \c, is asked there; or :target
#	\if :reverse ... \endif		checks that matter only with --reverse
#	-- of tables				the check is also made for new tables of a shard
#	-- probe: FUNCTION			the check is made in C, with the query if there is one
#	SELECT ... AS other \gset	its value is :'other' in the query
#	SELECT ...;					the query: the first line that ends in ";" ends it; others may follow
#	SELECT $$ ... $$ AS x \gset	a part of queries, each on lines of its own: :x stands
#								for it; a short one is set by \set x ...
#	\ir FILE					reads the parts of another file
#	-- arguments: NAMES			those of the queries, see below
#
# With -v checks=1 the output is the elements of an array of Check, where :'shards'
# is $1, and so on (see parameters).  Without, it is a macro for each query, for
# printf, with the arguments in the order of their names.

function fail(why) {
	print FILENAME ": " why >"/dev/stderr"
	exit failed = 1
}

BEGIN {
	where = "ON_SOURCE"
	if (checks) {
		number_all("shards schemas other name max_lag pause_limit trust_owners namespaces max_wal home set_schemas", "$", "")
		# The planner knows more of what is given.
		set("in_shard", "= ANY (:'namespaces')")
	}
}

# The first value stays.
function set(name, value) {
	if (!(name in part))
		part[name] = value
}

function number_all(names, before, after,	list, n, i) {
	n = split(names, list, " ")
	for (i = 1; i <= n; i++)
		number[list[i]] = before i after
}

# Put in what variables stand for, as psql does: also within what they stand for.
function expand(text,	out, word, name) {
	if (!checks)
		gsub(/%/, "%%", text)
	gsub(/::/, "\001", text)
	while (match(text, /:'?[a-z_]+'?/)) {
		word = name = substr(text, RSTART + 1, RLENGTH - 1)
		gsub(/'/, "", name)
		out = out substr(text, 1, RSTART - 1)
		text = substr(text, RSTART + RLENGTH)
		if (name in part)
			out = out (word == name ? expand(part[name]) : "'" part[name] "'")
		else if (word != name && name in number)
			out = out number[name]
		else
			fail("there is no :" word)
	}
	gsub("\001", "::", text)
	gsub("\001", "::", out)
	return out text
}

# A query as C: a literal for each line.
function literal(text,	lines, n, i, out) {
	n = split(expand(text), lines, "\n")
	for (i = 1; i <= n; i++) {
		gsub(/\\/, "&&", lines[i])
		gsub(/"/, "\\\\&", lines[i])
		out = out (checks ? "\n\t\"" : " \\\n\t\"") lines[i] (i < n ? "\\n\"" : "\"")
	}
	return out
}

function finish() {
	if (query != "")
		fail("a query has no end: " query)
	if (name != "" && checks)
		print "{.name = \"" name "\",.where = " where ",.only_reverse = " reverse + 0 ",.of_tables = " of_tables + 0 \
			(probe != "" ? ",.probe = " probe : "") (other != "" ? ",.other =" other : "") \
			(sql != "" ? ",.sql =" sql : "") "},"
	else if (name != "")
		print "#define " toupper(name) sql
	name = probe = query = other = sql = of_tables = ""
}

function take(line,	file, word) {
	sub(/[ \t]+$/, "", line)
	split(line, word, " ")
	if (in_part && line ~ /^\$\$ AS [a-z_]+ \\gset$/) {
		set(word[3], query)
		query = ""
		in_part = 0
	} else if (line == "SELECT $$")
		in_part = 1
	else if (word[1] == "\\set") {
		sub(/^[^ ]+ +[^ ]+ +/, "", line)
		part[word[2]] = line ~ /^'.*'$/ ? substr(line, 2, length(line) - 2) : line
	} else if (word[1] == "\\ir") {
		file = FILENAME
		sub(/[^\/]*$/, word[2], file)
		while ((getline line <file) > 0)
			take(line)
	} else if (word[1] == "\\echo") {
		finish()
		name = substr(line, 7)
	} else if (word[1] == "\\c")
		where = "ON_" toupper(substr(word[2], 2))
	else if (word[1] == "\\if" || word[1] == "\\endif") {
		finish()
		reverse = word[1] == "\\if"
	} else if (line == "-- of tables")
		of_tables = 1
	else if (line ~ /^-- probe: /)
		probe = word[3]
	else if (line ~ /^-- arguments: /)
		number_all(substr(line, 15), "%", "$s")
	else if (line ~ /^[ \t]*(--.*)?$/)
		return
	else {
		query = query (query == "" ? "" : "\n") line
		if (in_part)
			return
		if (sub(/ \\gset$/, "", query)) {
			other = literal(query) (checks ? ",.other_where = " where : "")
			query = ""
		} else if (sub(/;$/, "", query)) {
			sql = (sql == "" ? "" : sql " \";\"") literal(query)
			query = ""
		}
	}
}

{ take($0) }

END {
	if (!failed)
		finish()
}
