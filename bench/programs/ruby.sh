#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ruby with a program of records, strings, hashes, symbols and blocks.
#
# Imitates: a script or a web application's work on data in memory. Ruby keeps its objects in heap
# pages of its own and collects them; strings beyond 23 bytes, arrays, hash tables and instance
# variables are malloc calls, and its collector frees them page by page.
#
# Does not show: threads, extensions in C, the just-in-time compiler.
#
# packages: ruby
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(ruby)

make_inputs() {
    cat >work.rb <<'EOF'
state = 42
number = lambda do |limit|
  state = (state * 1103515245 + 12345) % 2147483648
  (state >> 8) % limit
end

Record = Struct.new(:id, :name, :tags, :notes)

4.times do |round|
  records = (0...40_000).map do |i|
    name = "customer #{i} " + "x" * number.call(60)
    tags = (0..number.call(6)).map { "tag#{number.call(500)}" }
    Record.new(i, name, tags, { size: name.size, text: "note " * (1 + number.call(12)) })
  end
  index = Hash.new { |hash, key| hash[key] = [] }
  records.each { |record| record.tags.each { |tag| index[tag] << record.id } }
  report = records.sort_by { |record| [-record.notes[:size], record.name] }.map do |record|
    "#{record.id};#{record.name.gsub(/x+/, "-")};#{record.tags.join(",")}"
  end
  words = report.join("\n").split(/[;,\s]+/).tally
  records.reject! { |record| record.id % 3 == 0 }
  puts [round, index.size, words.size, records.size, report.sum(&:size)].join(" ")
end
EOF
}

run_program() {
    unset RUBYOPT RUBYLIB
    exec ruby --disable=gems "$inputs/work.rb" >/dev/null </dev/null
}

main "$@"
