// SPDX-License-Identifier: MIT
const zlib = require('zlib');
const text = Buffer.alloc(1 << 20, 'some text ');
console.log(zlib.gunzipSync(zlib.gzipSync(text)).length);
