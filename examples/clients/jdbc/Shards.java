import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Where shards live, and what a client does when one has moved. */
public class Shards {
	static final long COUNT = 2000;
	private static final long SECONDS = 30;

	/**
	 * SN001: the shard has moved. SN002: it is not open there yet. 3F000, 42P01: the copy
	 * that the move has left has been renamed, or dropped.
	 */
	private static final Set<String> REFUSALS = Set.of("SN001", "SN002", "3F000", "42P01");

	/** What target_session_attrs is to this driver. */
	private static final Map<String, String> TYPES = Map.of("any", "any", "read-write", "primary", "primary", "primary",
			"read-only", "secondary", "standby", "secondary", "prefer-standby", "preferSecondary");

	private final String first;
	private final Map<Long, String> urls = new ConcurrentHashMap<>(); // where it is not the first server

	/** Begins with the server of this URL. */
	Shards(String first) {
		this.first = first;
	}

	/** One transaction, on the server of a URL. */
	interface Work<T> {
		T in(String url, long shard) throws Exception;
	}

	/**
	 * If the server refuses the transaction since the shard has moved, nothing of it has
	 * happened, and it is done again at the new home.
	 */
	<T> T of(long user, Work<T> work) throws Exception {
		long shard = Math.floorMod(user, COUNT);
		long deadline = System.nanoTime() + SECONDS * 1_000_000_000;
		for (;;) {
			String url = urls.getOrDefault(shard, first);
			try {
				return work.in(url, shard);
			} catch (Exception e) {
				String state = sqlState(e);
				if (state.startsWith("08") || state.startsWith("57P") || state.equals("25006"))
					urls.remove(shard); // that server may be no more; the first one knows
				if (!REFUSALS.contains(state) || System.nanoTime() - deadline > 0)
					throw e;
				String home = home(url, shard);
				if (home.equals("missing") || home.equals("here") && !state.startsWith("SN"))
					throw e;
				if (!home.equals("here") && !home.equals("closed"))
					urls.put(shard, url(home));
				if (state.equals("SN002") || home.equals("closed"))
					Thread.sleep(100);
			}
		}
	}

	private static String home(String url, long shard) throws SQLException {
		try (Connection connection = DriverManager.getConnection(url);
				PreparedStatement statement = connection.prepareStatement("SELECT snowid.shard_home(?)")) {
			statement.setInt(1, (int) shard);
			ResultSet home = statement.executeQuery();
			home.next();
			return home.getString(1);
		}
	}

	/** What a connection string says, as the registry has it: pairs, or a URI. */
	private static Map<String, String> given(String home) {
		Map<String, String> given = new HashMap<>();
		Matcher uri = Pattern.compile("postgres(?:ql)?://(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)/?([^?]*)\\??(.*)").matcher(home);
		if (uri.matches()) {
			String pairs = "host=" + hosts(uri.group(3)) + "&port=" + ports(uri.group(3)) + uri.replaceFirst("&user=$1&password=$2&dbname=$4&$5");
			for (String pair : pairs.split("&"))
				if (pair.matches("[^=]+=.+"))
					given.put(pair.split("=")[0], URLDecoder.decode(pair.split("=", 2)[1].replace("+", "%2B"), StandardCharsets.UTF_8));
			return given;
		}
		Matcher pair = Pattern.compile("(\\w+)\\s*=\\s*(?:'((?:[^'\\\\]|\\\\.)*)'|(\\S*))").matcher(home);
		while (pair.find())
			given.put(pair.group(1), (pair.group(2) == null ? pair.group(3) : pair.group(2)).replaceAll("\\\\(.)", "$1"));
		return given;
	}

	/** Of host:port,[v6]:port: the hosts, without brackets. */
	private static String hosts(String places) {
		return places.replaceAll(":\\d*(?=,|$)|[\\[\\]]", "");
	}

	private static String ports(String places) {
		return places.replaceAll("(\\[[^\\]]*\\]|[^,:]*):?(\\d*)", "$2");
	}

	/**
	 * What libpq takes TLS to be, for a driver that is less strict, and knows no "system":
	 * Java's own certificates take the place of those, and of a client's, too.
	 */
	private static Map<String, String> withTls(Map<String, String> given) {
		String root = given.get("sslrootcert");
		given.remove("sslfactory"); // no home names a class to load
		if ("true".equals(given.get("ssl")))
			given.putIfAbsent("sslmode", "require");
		if ("system".equals(root)) {
			if (!given.getOrDefault("sslmode", "verify-full").equals("verify-full"))
				throw new IllegalArgumentException("sslmode=" + given.get("sslmode") + " of a home is too weak for sslrootcert=system: it must be verify-full");
			if (given.containsKey("sslcert"))
				throw new IllegalArgumentException("a home with sslrootcert=system can have no sslcert here: name Java's javax.net.ssl.keyStore instead");
			given.put("sslmode", "verify-full");
			given.remove("sslrootcert");
		} else if (root != null)
			given.replace("sslmode", "require", "verify-ca");
		if (root != null)
			given.put("sslfactory", "org.postgresql.ssl." + (root.equals("system") ? "DefaultJavaSSLFactory" : "LibPQFactory"));
		return given;
	}

	/** Its URL. What it lacks is as in the first URL. */
	private String url(String home) {
		Matcher url = Pattern.compile("jdbc:postgresql://([^/]*)/([^?]*)\\??(.*)").matcher(first);
		if (!url.matches())
			throw new IllegalArgumentException(first);
		String hosts = hosts(url.group(1)), ports = ports(url.group(1)), database = url.group(2);
		StringBuilder options = new StringBuilder(url.group(3));
		for (Map.Entry<String, String> given : withTls(given(home)).entrySet()) {
			String key = given.getKey(), value = given.getValue();
			String encoded = URLEncoder.encode(key.equals("target_session_attrs") ? TYPES.get(value) : value, StandardCharsets.UTF_8);
			switch (key) {
				case "host": hosts = value; break;
				case "port": ports = value; break;
				case "dbname": database = encoded; break;
				case "target_session_attrs": options.append("&targetServerType=").append(encoded); break;
				case "user": case "password": case "sslmode": case "sslrootcert": case "sslcert": case "sslkey": case "sslfactory": case "options":
					options.append("&" + key + "=").append(encoded);
			}
		}
		String[] host = hosts.split(","), port = ports.split(",", -1);
		for (int n = 0; n < host.length; n++)
			host[n] = (host[n].contains(":") ? "[" + host[n] + "]" : host[n]) + ":" + (port[n % port.length].isEmpty() ? "5432" : port[n % port.length]);
		return "jdbc:postgresql://" + String.join(",", host) + "/" + database + "?" + options;
	}

	/** Libraries wrap the driver's exception in exceptions of their own. */
	private static String sqlState(Throwable e) {
		while (e != null && !(e instanceof SQLException))
			e = e.getCause();
		return e == null ? "" : String.valueOf(((SQLException) e).getSQLState());
	}
}
