// A client of grpc-java for the table of decisions: commands and replies are lines of JSON; see
// tools/peers/decisions/voice.py for their fields.
import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

public final class Voice {
  private static final Map<String, ManagedChannel> CHANNELS = new ConcurrentHashMap<>();
  private static final Metadata.Key<String> SET_COOKIE =
      Metadata.Key.of("set-cookie", Metadata.ASCII_STRING_MARSHALLER);
  private static final Gson GSON = new Gson();

  public static void main(String[] arguments) throws IOException {
    ExecutorService workers = Executors.newCachedThreadPool();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonObject command = JsonParser.parseString(line).getAsJsonObject();
      workers.execute(() -> run(command));
    }
    System.exit(0);
  }

  private static void run(JsonObject command) {
    Channel channel =
        CHANNELS.computeIfAbsent(
            command.get("target").getAsString(),
            target -> Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build());
    boolean isConcurrent = command.get("concurrent").getAsBoolean();
    List<CompletableFuture<JsonObject>> calls = new ArrayList<>();
    for (int count = command.get("count").getAsInt(); count > 0; count--) {
      CompletableFuture<JsonObject> call = start(channel, command);
      if (!isConcurrent) {
        call.join();
      }
      calls.add(call);
    }
    JsonArray rpcs = new JsonArray();
    calls.forEach(call -> rpcs.add(call.join()));
    JsonObject reply = new JsonObject();
    reply.add("id", command.get("id"));
    reply.add("rpcs", rpcs);
    synchronized (System.out) {
      System.out.println(GSON.toJson(reply));
      System.out.flush();
    }
  }

  private static CompletableFuture<JsonObject> start(Channel channel, JsonObject command) {
    long timeoutMs = (long) (command.get("timeout_s").getAsDouble() * 1000);
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(timeoutMs, TimeUnit.MILLISECONDS);
    if (command.get("wait_for_ready").getAsBoolean()) {
      options = options.withWaitForReady();
    }
    String path = command.get("method").getAsString().substring(1);
    MethodDescriptor<byte[], byte[]> method =
        MethodDescriptor.<byte[], byte[]>newBuilder()
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName(path)
            .setRequestMarshaller(new Bytes())
            .setResponseMarshaller(new Bytes())
            .build();
    CompletableFuture<JsonObject> result = new CompletableFuture<>();
    ClientCall<byte[], byte[]> call = channel.newCall(method, options);
    call.start(new Listener(result), metadata(command.get("metadata").getAsJsonArray()));
    call.request(2);
    call.sendMessage(command.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
    call.halfClose();
    return result;
  }

  private static Metadata metadata(JsonArray pairs) {
    Metadata metadata = new Metadata();
    for (JsonElement pair : pairs) {
      String key = pair.getAsJsonArray().get(0).getAsString();
      String value = pair.getAsJsonArray().get(1).getAsString();
      if (key.endsWith("-bin")) {
        metadata.put(
            Metadata.Key.of(key, Metadata.BINARY_BYTE_MARSHALLER), Base64.getDecoder().decode(value));
      } else {
        metadata.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), value);
      }
    }
    return metadata;
  }

  private static final class Listener extends ClientCall.Listener<byte[]> {
    private final CompletableFuture<JsonObject> result;
    private final long startNs = System.nanoTime();
    private final JsonArray cookies = new JsonArray();
    private String reply = "";

    Listener(CompletableFuture<JsonObject> result) {
      this.result = result;
    }

    @Override
    public void onHeaders(Metadata headers) {
      addCookies(headers);
    }

    @Override
    public void onMessage(byte[] message) {
      reply = new String(message, StandardCharsets.UTF_8);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      addCookies(trailers);
      JsonObject rpc = new JsonObject();
      rpc.addProperty("code", status.getCode().name());
      rpc.addProperty("details", String.valueOf(status.getDescription()));
      rpc.addProperty("reply", reply);
      rpc.addProperty("seconds", (System.nanoTime() - startNs) / 1e9);
      rpc.add("cookies", cookies);
      result.complete(rpc);
    }

    private void addCookies(Metadata metadata) {
      Iterable<String> values = metadata.getAll(SET_COOKIE);
      if (values != null) {
        values.forEach(cookies::add);
      }
    }
  }

  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }
}
