#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sqlite3: many rows, indexes, joins, a memory limit of its own, blobs, integrity check.
. "$(dirname "$0")/lib.sh"
need sqlite3

rows=$(scale 100000 5000000)
cat >"$work/work.sql" <<END
pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -64000;
create table item (id integer primary key, name text, value integer, data blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < $rows)
insert into item select i, 'name ' || (i * 7919 % 1000003), i * 31 % 1009, zeroblob(i % 64) from n;
create index item_name on item (name);
create index item_value on item (value, id);
select count(*), sum(value), sum(length(data)), max(name) from item;
select value, count(*), group_concat(name, ';') from item
    where value < 5 and id < 50000 group by value;
select a.id, b.id from item a join item b on a.name = b.name
    where a.id < 3000 and b.id <> a.id limit 20;
update item set data = zeroblob(3) || cast(name as blob) where id % 10 = 0;
delete from item where id % 3 = 0;
select count(*), sum(length(data)), sum(id) from item;
create table big as select id, printf('%0*d', 100000, id) as text from item limit 200;
select sum(length(text)), substr(text, -5) from big;
vacuum;
pragma integrity_check;
select name, value from item order by name desc limit 5;
END

prove sqlite3 :memory: 'select 1'
same 1 sqlite3 disk.db ".read $work/work.sql"
