#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# node: worker threads that come and go, buffers sent between them, JSON, compression on the pool.
. "$(dirname "$0")/lib.sh"
need node

cat >"$work/work.js" <<'END'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');
const { promisify } = require('util');

const sum = data => crypto.createHash('sha256').update(data).digest('hex').slice(0, 12);

function records(seed, count) {
  const list = [];
  for (let i = 0; i < count; i++) {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    list.push({ id: i, text: 'x'.repeat(seed % 100) + seed, parts: [...Array(seed % 9).keys()] });
  }
  return list;
}

if (!isMainThread) {
  parentPort.on('message', buffer => {
    const view = Buffer.from(buffer);
    const text = JSON.stringify(records(workerData.seed + view[0], 3000));
    const packed = zlib.deflateSync(text);
    const result = new Uint8Array(view.length + 1);
    result.set(view);
    const sums = sum(text) + sum(zlib.inflateSync(packed));
    parentPort.postMessage({ sum: sums, buffer: result.buffer }, [result.buffer]);
  });
} else {
  const useWorker = seed => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: { seed } });
    const sums = [];
    worker.on('message', message => {
      sums.push(message.sum);
      if (sums.length === 8) worker.terminate().then(() => resolve(sums));
      else worker.postMessage(message.buffer, [message.buffer]);
    });
    worker.on('error', reject);
    const first = new Uint8Array(1000 * seed + 100000).buffer;
    worker.postMessage(first, [first]);
  });
  (async () => {
    for (let round = 0; round < Number(process.argv[2]); round++) {
      const all = await Promise.all([1, 2, 3, 4, 5, 6].map(seed => useWorker(seed + round)));
      console.log(round, sum(JSON.stringify(all)));
    }
    const gzip = promisify(zlib.gzip), gunzip = promisify(zlib.gunzip);
    const inputs = [...Array(40).keys()].map(i => Buffer.from(JSON.stringify(records(i, 2000))));
    const roundTrip = async input => sum(await gunzip(await gzip(input)));
    console.log(sum((await Promise.all(inputs.map(roundTrip))).join()));
    const keys = await Promise.all([...Array(16).keys()].map(i =>
      promisify(crypto.scrypt)('secret' + i, 'salt', 32, { N: 1024 })));
    console.log(sum(Buffer.concat(keys)));
    let strings = [];
    for (let i = 0; i < 300000; i++) strings.push('s' + i);
    console.log(strings.join('').length, strings.sort().slice(0, 3).join());
  })();
}
END

prove node --version
same 1 node "$work/work.js" "$(scale 1 30)"
