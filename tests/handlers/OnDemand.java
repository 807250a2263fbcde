import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Sends memory that Java maps (direct and mapped buffers) to itself by UCX, and checks it. */
public final class OnDemand {
    private static final int BYTES = 200_000;
    private static final int ROUNDS = 3;

    /** Sends one buffer into another; returns 0, or -1 after printing what failed. */
    private static native int transfer(ByteBuffer from, ByteBuffer to);

    private static ByteBuffer direct() {
        return ByteBuffer.allocateDirect(BYTES);
    }

    private static ByteBuffer mapped(Path file) throws Exception {
        try (FileChannel channel = FileChannel.open(
                file, StandardOpenOption.READ, StandardOpenOption.WRITE,
                StandardOpenOption.CREATE)) {
            return channel.map(FileChannel.MapMode.READ_WRITE, 0, BYTES);
        }
    }

    /** Unmaps the memory of buffers now, and not when the collector finds them. */
    private static void free(ByteBuffer... buffers) throws Exception {
        Field unsafe = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        unsafe.setAccessible(true);
        for (ByteBuffer buffer : buffers) {
            ((sun.misc.Unsafe) unsafe.get(null)).invokeCleaner(buffer);
        }
    }

    private static void send(ByteBuffer from, ByteBuffer to, int seed) throws Exception {
        for (int i = 0; i < BYTES; i++) {
            from.put(i, (byte) (i * 7 + i / 251 + seed));
        }
        if (transfer(from, to) != 0) {
            System.exit(1);
        }
        if (from.mismatch(to) != -1) {
            System.out.println("byte " + from.mismatch(to) + " of round " + seed + " differs");
            System.exit(1);
        }
        free(from, to);
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        Path directory = Files.createTempDirectory("on-demand");
        for (int round = 0; round < ROUNDS; round++) {
            Path file = directory.resolve("mapped" + round);
            send(direct(), mapped(file), 2 * round);
            send(mapped(file), direct(), 2 * round + 1);
            Files.delete(file);
            System.gc();
        }
        Files.delete(directory);
        System.out.println("all passed");
    }
}
