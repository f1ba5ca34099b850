#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sqlite3 on a database in memory: rows, two indexes, joins, groups, updates, deletes, large texts.
#
# Imitates: a program that keeps its data in an embedded database. Pages of 4 KiB come from malloc
# one by one and stay; statements, rows and strings come and go; sorting takes large buffers.
#
# Does not show: files and journals (nothing is written to disk), several connections or threads.
#
# packages: sqlite3
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(sqlite3)

make_inputs() {
    cat >work.sql <<'END'
create table item (id integer primary key, name text, value integer, data blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
insert into item select i, 'name ' || (i * 7919 % 1000003), i * 31 % 1009, zeroblob(i % 64) from n;
create index item_name on item (name);
create index item_value on item (value, id);
select count(*), sum(value), sum(length(data)), max(name) from item;
select value, count(*), group_concat(name, ';') from item where value < 100 group by value;
select a.id, b.id from item a join item b on a.value = b.value where a.id < 300 and b.id < 20000;
update item set data = zeroblob(3) || cast(name as blob) where id % 10 = 0;
delete from item where id % 3 = 0;
create table big as select id, printf('%0*d', 20000, id) as text from item limit 1000;
select sum(length(text)), substr(text, -5) from big;
select name, value from item order by substr(name, -3), name;
vacuum;
END
}

run_program() {
    exec sqlite3 -batch -bail -init /dev/null :memory: <"$inputs/work.sql" >/dev/null
}

main "$@"
