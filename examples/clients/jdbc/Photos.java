import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.OffsetDateTime;

/**
 * Photos of a user, in the shard where the user lives.
 *
 * JDBC_URL=jdbc:postgresql://127.0.0.1/app?user=app
 * java -cp /usr/share/java/postgresql.jar Photos.java 31341
 */
public class Photos {
	public static void main(String[] args) throws SQLException {
		long user = Long.parseLong(args[0]);
		long shard = Math.floorMod(user, 2000L);
		String photos = "insta" + shard + ".photos"; // qualified: no SET search_path
		System.out.println("user " + user + " lives in shard " + shard);

		String insert = "INSERT INTO " + photos + " (user_id, caption) VALUES (?, ?)";
		String[] returning = {"id"};

		try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
			long first;
			try (PreparedStatement statement = connection.prepareStatement(insert, returning)) {
				statement.setLong(1, user);
				statement.setString(2, "the first");
				statement.executeUpdate();
				first = lastKey(statement);
				System.out.println("inserted " + first);
			}

			try (PreparedStatement statement = connection.prepareStatement(insert, returning)) {
				for (int n = 1; n <= 1000; n++) {
					statement.setLong(1, user);
					statement.setString(2, "photo " + n);
					statement.addBatch();
				}
				int inserted = statement.executeBatch().length;
				System.out.println("inserted " + inserted + " more, the last " + lastKey(statement));
			}

			OffsetDateTime made;
			try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM snowid.id_parts(?)")) {
				statement.setLong(1, first);
				ResultSet parts = statement.executeQuery();
				parts.next();
				made = parts.getObject("created_at", OffsetDateTime.class);
				System.out.println("made " + made + " in shard " + parts.getInt("shard"));
			}

			try (PreparedStatement statement = connection.prepareStatement(
					"SELECT count(*), max(id) FROM " + photos + " WHERE snowid.id_between(id, ?, ?)")) {
				statement.setObject(1, made);
				statement.setObject(2, made.plusMinutes(1));
				ResultSet found = statement.executeQuery();
				found.next();
				System.out.println("in the minute from then: " + found.getLong(1)
						+ " photos, the newest " + found.getLong(2));
			}
		}
	}

	private static long lastKey(PreparedStatement statement) throws SQLException {
		long key = 0;
		for (ResultSet keys = statement.getGeneratedKeys(); keys.next();)
			key = keys.getLong(1);
		return key;
	}
}
