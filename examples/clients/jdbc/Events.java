import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * Ids in blocks: one round trip for 50 of them, known before the INSERT.
 *
 * JDBC_URL=jdbc:postgresql://127.0.0.1/app?user=app
 * java -cp build:/usr/share/java/postgresql.jar Events 31341
 */
public class Events {
	/** Must be the INCREMENT of the sequence. */
	static final int BLOCK = 50;

	/** Ids of one shard and sequence; next_id() reserves BLOCK of them a call. */
	static class Ids {
		private final Connection connection;
		private final int shard;
		private final String sequence;
		private long next;
		private int left;
		int calls;

		Ids(Connection connection, int shard, String sequence) {
			this.connection = connection;
			this.shard = shard;
			this.sequence = sequence;
		}

		synchronized long next() throws SQLException {
			if (left == 0) {
				try (PreparedStatement statement = connection.prepareStatement("SELECT snowid.next_id(?, ?::regclass)")) {
					statement.setInt(1, shard);
					statement.setString(2, sequence);
					ResultSet block = statement.executeQuery();
					block.next();
					next = block.getLong(1);
				}
				left = BLOCK;
				calls++;
			}
			left--;
			return next++;
		}
	}

	public static void main(String[] args) throws SQLException {
		long user = Long.parseLong(args[0]);
		int shard = (int) Math.floorMod(user, 2000L);
		String schema = "insta" + shard;

		try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"));
				PreparedStatement insert = connection.prepareStatement(
						"INSERT INTO " + schema + ".events (id, user_id, what) VALUES (?, ?, ?)")) {
			Ids ids = new Ids(connection, shard, schema + ".events_id_seq");
			for (int n = 1; n <= 1000; n++) {
				insert.setLong(1, ids.next());
				insert.setLong(2, user);
				insert.setString(3, "event " + n);
				insert.addBatch();
			}
			insert.executeBatch();
			System.out.println("inserted 1000 events, with ids of " + ids.calls + " calls");
		}
	}
}
