# Draw the plots of one run: gnuplot -e "results = 'DIRECTORY'" plot.gp
# reads results.csv in that directory and puts the SVG files beside it.

set datafile separator ','
set terminal svg size 720,400 font 'sans-serif,13' background 'white'
set style fill solid 0.85 noborder
set border 3 lc rgb '#444444'
set tics nomirror out noenhanced
set grid lc rgb '#dddddd'
set key top left reverse Left samplen 2

# The rows of a measure by size, of one variant of it, and the variants it has.
rows(measure) = sprintf("< grep '^%s,' '%s/results.csv' | grep -v ',row,' | sort -t, -k5,5g", measure, results)
of(measure, variant) = sprintf("< grep '^%s,%s,' '%s/results.csv'", measure, variant, results)
variants(measure) = system(sprintf("grep '^%s,' '%s/results.csv' | cut -d, -f2 | grep -vx row | awk '!seen[$0]++'", measure, results))

# A variant has the same colour everywhere: ours blue, core's orange.
colour(v) = v eq 'next_id' ? '#1f5fbf' : v eq 'next_id_cache64' ? '#7fb2f0' : \
	v eq 'nextval' || v eq 'bigserial' ? '#e07b00' : v[1:7] eq 'nextval' ? '#f5b866' : \
	v eq 'snippet' ? '#b03a48' : '#6b8e5a'
rgb(v) = int('0x'.colour(v)[2:7])

# Bars: median, and a line from the lowest to the highest round.
set style textbox opaque noborder
unset key
set yrange [*:*] reverse
set offsets 0, 0, 0.7, 0.7
set grid noytics

set output results.'/cpu.svg'
set title 'CPU time of one id in bulk (logarithmic)'
set xlabel 'ns of the backend, an id'
set logscale x
set xrange [5:20000]
plot rows('cpu') using (5):0:(5):5:($0-0.35):($0+0.35):(rgb(strcol(2))):ytic(2) with boxxyerror lc rgb variable, \
	'' using 5:0:7:8 with xerrorbars pt 0 lw 1 lc rgb '#444444', \
	'' using ($8 * 1.08):0:(sprintf('%.0f', $5)) with labels left

set output results.'/load.svg'
set title 'INSERT … SELECT of a million rows, primary key included'
set xlabel 'ms'
unset logscale x
set xrange [0:*]
set offsets 0, graph 0.1, 0.7, 0.7
plot rows('load') using (0):0:(0):5:($0-0.35):($0+0.35):(rgb(strcol(2))):ytic(2) with boxxyerror lc rgb variable, \
	'' using 5:0:7:8 with xerrorbars pt 0 lw 1 lc rgb '#444444', \
	'' using ($8 + 60):0:(sprintf('%.0f', $5)) with labels left

set output results.'/quiet.svg'
set title 'WAL of a row, 1,000 shards each used once in 1.2 s'
set xlabel 'bytes'
plot rows('quiet') using (0):0:(0):5:($0-0.35):($0+0.35):(rgb(strcol(2))):ytic(2) with boxxyerror lc rgb variable, \
	'' using ($5 + 3):0:(sprintf('%.0f', $5)) with labels left

# Lines: how cost grows.
set key
set offsets
set grid ytics
set yrange [0:*] noreverse
set xrange [*:*]
set logscale x 2
set ytics

set output results.'/sessions.svg'
set title 'One id a transaction, by clients'
set xlabel 'clients'
set ylabel 'transactions a second'
plot for [v in variants('sessions')] of('sessions', v) using 3:5:7:8 with yerrorlines lw 2 pt 7 ps 0.5 lc rgb colour(v) title v noenhanced

set output results.'/rate.svg'
set title 'One sequence asked for all that it may give'
set xlabel 'sessions'
set ylabel '% of 1,024,000 ids a second'
set yrange [*<95:101]
set key bottom left
plot of('rate', 'next_id') using 3:5:7:8 with yerrorlines lw 2 pt 7 ps 0.5 lc rgb colour('next_id') title 'by the times in the ids', \
	of('rate_by_clock', 'next_id') using 3:5:7:8 with yerrorlines lw 1 pt 6 ps 0.5 lc rgb '#888888' title 'by the clock'

set output results.'/sequences.svg'
set title 'CPU time of one id, by the sequences used in turn in one statement'
set xlabel 'sequences'
set ylabel 'ns of the backend, an id'
set yrange [0:*]
set key top left
plot for [v in variants('sequences')] of('sequences', v) using 3:5:7:8 with yerrorlines lw 2 pt 7 ps 0.5 lc rgb colour(v) title v noenhanced

set output results.'/spread.svg'
set title 'One id a transaction, 8 clients, by sequences'
set ylabel 'transactions a second'
plot for [v in variants('spread')] of('spread', v) using 3:5:7:8 with yerrorlines lw 2 pt 7 ps 0.5 lc rgb colour(v) title v noenhanced

set output results.'/grow.svg'
set title 'The next million rows, as the table grows'
set xlabel 'million rows'
set ylabel 's'
unset logscale x
set xrange [0:*]
plot for [v in variants('grow')] of('grow', v) using 3:($5 / 1000) with linespoints lw 2 pt 7 ps 0.5 lc rgb colour(v) title v noenhanced

set output results.'/index.svg'
set title 'Size of the primary key''s index'
set ylabel 'MiB'
plot for [v in variants('index')] of('index', v) using 3:5 with linespoints lw 2 pt 7 ps 0.5 lc rgb colour(v) title v noenhanced
