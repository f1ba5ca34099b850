/* SPDX-License-Identifier: MIT */
import java.nio.ByteBuffer;

public class Program {
    public static void main(String[] arguments) {
        ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20);
        buffer.putLong(0, 42);
        System.out.println(buffer.getLong(0));
    }
}
