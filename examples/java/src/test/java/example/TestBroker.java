package example;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;

/** The test broker of ottla as a process of its own; it ends with this JVM, even with one that is killed. */
public final class TestBroker implements AutoCloseable {
    private final Process process;
    private final String bootstrapServers;

    /** Starts it; the options are those of {@code ottla test-broker}. */
    public TestBroker(String... options) {
        List<String> command = new ArrayList<>(List.of("ottla", "test-broker"));
        command.addAll(List.of(options));
        try {
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            bootstrapServers = process.inputReader().readLine();
        } catch (IOException error) {
            throw new UncheckedIOException("is ottla installed? pip install ottla", error);
        }
        if (bootstrapServers == null) {
            throw new IllegalStateException("the test broker did not start; its message is on standard error");
        }
    }

    public String bootstrapServers() {
        return bootstrapServers;
    }

    @Override
    public void close() {
        process.destroy();
        process.onExit().join();
    }
}
