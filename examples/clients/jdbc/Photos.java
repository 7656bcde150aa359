import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

/**
 * Photos of a user, in the shard where the user lives.
 *
 * JDBC_URL=jdbc:postgresql://127.0.0.1/app?user=app
 * java -cp build:/usr/share/java/postgresql.jar Photos 31341
 */
public class Photos {
	static final Shards shards = new Shards(System.getenv("JDBC_URL"));
	static final String[] returning = {"id"};

	interface Work<T> {
		T in(Connection connection, String photos) throws SQLException;
	}

	/** One transaction in the user's shard, whose schema qualifies all names: no SET search_path. */
	static <T> T inShardOf(long user, Work<T> work) throws Exception {
		return shards.of(user, (url, shard) -> {
			// A pool for each URL would go here.
			try (Connection connection = DriverManager.getConnection(url)) {
				connection.setAutoCommit(false);
				T result = work.in(connection, "insta" + shard + ".photos");
				connection.commit();
				return result;
			}
		});
	}

	public static void main(String[] args) throws Exception {
		long user = Long.parseLong(args[0]);
		System.out.println("user " + user + " lives in shard " + Math.floorMod(user, Shards.COUNT));

		long first = inShardOf(user, (connection, photos) -> {
			try (PreparedStatement statement = connection.prepareStatement(
					"INSERT INTO " + photos + " (user_id, caption) VALUES (?, ?)", returning)) {
				statement.setLong(1, user);
				statement.setString(2, "the first");
				statement.executeUpdate();
				return lastKey(statement);
			}
		});
		System.out.println("inserted " + first);

		System.out.println("inserted " + inShardOf(user, (connection, photos) -> {
			try (PreparedStatement statement = connection.prepareStatement(
					"INSERT INTO " + photos + " (user_id, caption) VALUES (?, ?)", returning)) {
				for (int n = 1; n <= 1000; n++) {
					statement.setLong(1, user);
					statement.setString(2, "photo " + n);
					statement.addBatch();
				}
				return statement.executeBatch().length + " more, the last " + lastKey(statement);
			}
		}));

		OffsetDateTime made = inShardOf(user, (connection, photos) -> {
			try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM snowid.id_parts(?)")) {
				statement.setLong(1, first);
				ResultSet parts = statement.executeQuery();
				parts.next();
				System.out.println("made " + parts.getObject("created_at", OffsetDateTime.class)
						+ " in shard " + parts.getInt("shard"));
				return parts.getObject("created_at", OffsetDateTime.class);
			}
		});

		System.out.println("in the minute from then: " + inShardOf(user, (connection, photos) -> {
			try (PreparedStatement statement = connection.prepareStatement(
					"SELECT count(*), max(id) FROM " + photos + " WHERE snowid.id_between(id, ?, ?)")) {
				statement.setObject(1, made);
				statement.setObject(2, made.plusMinutes(1));
				ResultSet found = statement.executeQuery();
				found.next();
				return found.getLong(1) + " photos, the newest " + found.getLong(2);
			}
		}));

		// The next page has the ids below the last one of this page.
		int count = 0;
		long last = Long.MAX_VALUE;
		for (List<Long> page = null; page == null || page.size() == 400; count += page.size()) {
			long before = last;
			page = inShardOf(user, (connection, photos) -> page(connection, photos, user, before));
			if (!page.isEmpty())
				last = page.get(page.size() - 1);
		}
		System.out.println("in pages of 400: " + count + " photos, the oldest " + last);
	}

	private static List<Long> page(Connection connection, String photos, long user, long before) throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(
				"SELECT id FROM " + photos + " WHERE user_id = ? AND id < ? ORDER BY id DESC LIMIT 400")) {
			statement.setLong(1, user);
			statement.setLong(2, before);
			List<Long> page = new ArrayList<>();
			for (ResultSet ids = statement.executeQuery(); ids.next();)
				page.add(ids.getLong(1));
			return page;
		}
	}

	private static long lastKey(PreparedStatement statement) throws SQLException {
		long key = 0;
		for (ResultSet keys = statement.getGeneratedKeys(); keys.next();)
			key = keys.getLong(1);
		return key;
	}
}
