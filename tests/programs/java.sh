#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# java: the virtual machine's own C++ heap: class loading, compiler threads, three garbage
# collectors kept busy by several threads, compression, direct buffers.
. "$(dirname "$0")/lib.sh"
need java

cat >"$work/Work.java" <<'END'
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import java.util.zip.*;

public class Work {
    static String digest(byte[] data) throws Exception {
        byte[] sum = MessageDigest.getInstance("SHA-256").digest(data);
        return String.format("%02x%02x%02x%02x", sum[0], sum[1], sum[2], sum[3]);
    }

    static String fill(int seed, int rounds) throws Exception {
        Random random = new Random(seed);
        Map<Integer, List<String>> map = new HashMap<>();
        long total = 0;
        for (int i = 0; i < rounds; i++) {
            List<String> list = map.computeIfAbsent(random.nextInt(2000), key -> new ArrayList<>());
            list.add("text " + random.nextInt(100000));
            if (list.size() > 30) {
                total += map.remove(random.nextInt(2000)) == null ? 1 : 2;
            }
        }
        String text = new TreeMap<>(map).toString();
        Deflater deflater = new Deflater();
        byte[] input = text.getBytes("UTF-8");
        byte[] packed = new byte[input.length + 100];
        deflater.setInput(input);
        deflater.finish();
        int length = deflater.deflate(packed);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(packed, 0, length);
        byte[] back = new byte[input.length];
        inflater.inflate(back);
        inflater.end();
        ByteBuffer direct = ByteBuffer.allocateDirect(1 << 20);
        direct.putLong(total);
        return digest(back) + direct.getLong(0);
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<String>> futures = new ArrayList<>();
        for (int i = 0; i < 24; i++) {
            int seed = i;
            futures.add(pool.submit(() -> fill(seed, rounds)));
        }
        for (Future<String> future : futures) {
            System.out.println(future.get());
        }
        pool.shutdown();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            Thread thread = new Thread(() -> new StringBuilder("x".repeat(10000)).reverse());
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(IntStream.range(0, 1000000).parallel().mapToObj(Integer::toString)
                .collect(Collectors.groupingByConcurrent(String::length, Collectors.counting())));
    }
}
END

rounds=$(scale 8000 1500000)
prove java -version
# Not even warnings: whether there is one may depend on how busy the machine is.
quiet=(-Xlog:disable)
java "${quiet[@]}" -version >/dev/null 2>&1 || quiet=()
same 1 java "${quiet[@]}" -Xmx96m "$work/Work.java" "$rounds"
for collector in $(scale -XX:+UseParallelGC "-XX:+UseSerialGC -XX:+UseParallelGC -XX:+UseG1GC"); do
    java $collector -version >/dev/null 2>&1 || continue
    same_again 1 java $collector "${quiet[@]}" -Xmx96m "$work/Work.java" "$rounds"
done
