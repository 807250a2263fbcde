import java.nio.ByteBuffer;

/** Allocates on Java's heap and outside it, and starts a process. */
public class Buffers {
    public static void main(String[] arguments) throws Exception {
        byte[][] held = new byte[64][];
        for (int i = 0; i < 1000; i++) {
            held[i % 64] = new byte[1 << 20];
            held[i % 64][5] = 1;
        }
        ByteBuffer direct = ByteBuffer.allocateDirect(1 << 24);
        direct.put(3, (byte) 7);
        Process process = new ProcessBuilder("true").start();
        System.out.println(direct.get(3) + " " + process.waitFor());
    }
}
