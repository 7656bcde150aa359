import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;

public class Lost {
	public static void main(String[] args) throws Exception {
		Shards shards = new Shards(System.getenv("JDBC_URL"));
		while (System.in.read() >= 0) {
			try {
				String at = shards.of(31341, (url, shard) -> {
					try (Connection connection = DriverManager.getConnection(url);
							ResultSet port = connection.createStatement().executeQuery("INSERT INTO insta1341.photos (user_id, caption)"
									+ " VALUES (31341, 'a') RETURNING current_setting('port')")) {
						port.next();
						return port.getString(1);
					}
				});
				System.out.println(at);
			} catch (Exception e) {
				System.out.println("lost " + e.toString().replace('\n', ' '));
			}
		}
	}
}
