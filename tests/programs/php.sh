#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# PHP: extensions loaded with RTLD_DEEPBIND; arrays, strings, regular expressions; its own allocator on top of ours and
# without it.
. "$(dirname "$0")/lib.sh"
need php

cat >"$work/work.php" <<'END'
<?php
mt_srand(12345);
$words = [];
for ($i = 0; $i < (int)$argv[1]; $i++) {
    $word = substr(md5((string)mt_rand()), 0, mt_rand(1, 32));
    $words[substr($word, 0, 2)][] = ['id' => $i, 'word' => $word, 'parts' => str_split($word, 3)];
    if ($i % 1000 == 0) {
        unset($words[substr($word, 0, 2)]);
    }
}
ksort($words, SORT_STRING);
echo count($words), ' ', array_sum(array_map('count', $words)), "\n";
$text = implode(' ', array_map(fn($group) => implode(',', array_column($group, 'word')), $words));
echo strlen($text), ' ', preg_match_all('/[0-9]+/', $text), ' ', md5(preg_replace('/([a-f])(\d)/', '$2$1', $text)), "\n";
echo md5(json_encode($words)), ' ', md5(serialize($words)), "\n";
echo strlen(str_repeat($text, 5)), "\n";
END

prove php -r 'echo 1;'
count=$(scale 100000 500000)
same 1 php "$work/work.php" "$count"
export USE_ZEND_ALLOC=0
same 1 php "$work/work.php" "$count"
