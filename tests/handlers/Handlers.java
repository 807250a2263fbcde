/** Uses the faults that Java's own handlers turn into exceptions, beside the device's. */
public final class Handlers {
    private static native int registerPage();

    private static native int copyFromUnmappedMemory();

    private static int depth(int so_far) {
        return depth(so_far + 1) + 1;
    }

    /** Counts the exceptions of null references: compiled code finds them by SIGSEGV. */
    private static int nulls(int rounds) {
        int found = 0;
        for (int round = 0; round < rounds; round++) {
            String text = round % 100 == 0 ? null : "text";
            try {
                found += text.length() > 100 ? 1 : 0;
            } catch (NullPointerException expected) {
                found++;
            }
        }
        return found;
    }

    public static void main(String[] arguments) {
        System.load(arguments[0]);
        if (registerPage() != 0) {
            System.exit(1);
        }
        int overflows = 0;
        for (int round = 0; round < 3; round++) {
            System.out.println("nulls: " + nulls(100_000));
            try {
                depth(0);
            } catch (StackOverflowError expected) {
                overflows++;
            }
            if (copyFromUnmappedMemory() != 0) {
                System.exit(1);
            }
        }
        System.out.println("overflows: " + overflows);
    }
}
