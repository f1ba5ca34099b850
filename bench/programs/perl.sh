#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# perl with a program of hashes, lists, strings and regular expressions.
#
# Imitates: the evaluation of log files and reports. Perl keeps the heads of its values in arenas of
# its own; strings, lists and the buckets and keys of hashes each come from malloc, most of them
# smaller than 100 bytes, and strings grow by realloc.
#
# Does not show: threads (perl has none to speak of), modules in C.
#
# packages: perl
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(perl)

make_inputs() {
    cat >work.pl <<'END'
use strict;
use warnings;

my $state = 42;
sub number {
    $state = ($state * 1103515245 + 12345) % 2147483648;
    return ($state >> 8) % $_[0];
}

for my $round (1 .. 3) {
    my @lines = map {
        sprintf "%s host%d GET /%s %d", "x" x number(20), number(500),
            join("/", map { "part" . number(50) } 0 .. number(5)), number(100000)
    } 1 .. 50000;
    my (%of_host, %of_path);
    for my $line (@lines) {
        my ($host, $path, $size) = $line =~ /(host\d+) GET (\S+) (\d+)$/ or die "no match";
        $of_host{$host}{count}++;
        push @{$of_host{$host}{paths}}, $path;
        $of_path{$path} += $size;
    }
    my $lines = 0;
    $lines += $_->{count} for values %of_host;
    die "lines were lost" if $lines != @lines;
    my @order = sort { $of_path{$b} <=> $of_path{$a} || $a cmp $b } keys %of_path;
    my $report = "";
    $report .= "$_ $of_path{$_}\n" for @order;
    my @words = split /[^a-z0-9]+/, $report;
    print scalar(@words), " ", length(join ",", reverse @words), " $order[0]\n";
}
END
}

run_program() {
    export PERL_HASH_SEED=0 PERL_PERTURB_KEYS=0
    unset PERL5OPT PERL5LIB
    exec perl "$inputs/work.pl" >/dev/null </dev/null
}

main "$@"
