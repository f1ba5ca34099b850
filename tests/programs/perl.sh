#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Perl: hashes, strings that grow, sorting, regular expressions, fork with copy on write.
. "$(dirname "$0")/lib.sh"
need perl

cat >"$work/work.pl" <<'END'
use strict; use warnings;
$ENV{PERL_HASH_SEED} // die "the order of hashes must not be random";
my ($count) = @ARGV;
my (%words, @list);
my $state = 12345;
sub number { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return $state >> 8; }
for my $i (1 .. $count) {
    my $word = join '', map { chr(97 + number() % 26) } 1 .. 1 + number() % 12;
    push @{ $words{substr $word, 0, 3} }, $word;
    push @list, { id => $i, word => $word, parts => [ split //, $word ] };
    delete $words{substr $list[number() % @list]{word}, 0, 3} if $i % 1000 == 0;
}
print scalar(keys %words), " groups\n";
my $text = join ' ', map { $_->{word} } @list;
my $vowels = () = $text =~ /[aeiou]+/g;
(my $changed = $text) =~ s/([b-df-h])(\w)/$2$1/g;
print length($text), " $vowels ", unpack('%32C*', $changed), "\n";
my @sorted = sort { $a->{word} cmp $b->{word} || $a->{id} <=> $b->{id} } @list;
print join(',', map { $_->{id} } @sorted[0 .. 9]), "\n";
$#list = $count / 2;
my $grown = '';
$grown .= $_->{word} x 3 for @list;
print length($grown), "\n";
for my $child (1 .. 8) {
    defined(my $pid = open my $pipe, '-|') or die "fork: $!";
    if (!$pid) {
        my @mine = map { { %$_, child => $child } } @list[0 .. 999];
        print scalar(@mine), " of child $child: ", join('', map { $_->{word} } @mine[0 .. 4]), "\n";
        exit 0;
    }
    print while <$pipe>;
    close $pipe or die "child: $?";
}
END

export PERL_HASH_SEED=1 PERL_PERTURB_KEYS=0
prove perl -e 1
same 1 perl "$work/work.pl" "$(scale 40000 1000000)"
