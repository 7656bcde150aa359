import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/**
 * Photos and events of a user, in the shard where the user lives.
 *
 * JDBC_URL=jdbc:postgresql://127.0.0.1/app?user=app java ... Main 31341
 */
public class Main {
	static final Shards shards = new Shards(System.getenv("JDBC_URL"));
	static final Map<String, SessionFactory> factories = new ConcurrentHashMap<>();

	/** One for each shard: default_schema qualifies all names, and blocks of ids are its own. */
	static SessionFactory factory(String url, long shard) {
		return new Configuration()
				.addAnnotatedClass(Photo.class)
				.addAnnotatedClass(Event.class)
				.setProperty("hibernate.connection.driver_class", "org.postgresql.Driver")
				.setProperty("hibernate.connection.url", url)
				.setProperty("hibernate.dialect", SnowidDialect.class.getName())
				.setProperty("hibernate.default_schema", "insta" + shard)
				.setProperty("hibernate.jdbc.batch_size", "50")
				.buildSessionFactory();
	}

	/** One transaction in the user's shard, in a session of its own. */
	static <T> T inShardOf(long user, Function<Session, T> work) throws Exception {
		return shards.of(user, (url, shard) -> {
			Session session = factories.computeIfAbsent(shard + " " + url, key -> factory(url, shard)).openSession();
			try {
				session.beginTransaction();
				T result = work.apply(session);
				session.getTransaction().commit();
				return result;
			} catch (RuntimeException e) {
				session.getTransaction().rollback();
				throw e;
			} finally {
				session.close();
			}
		});
	}

	public static void main(String[] args) throws Exception {
		long user = Long.parseLong(args[0]);
		System.out.println("user " + user + " lives in shard " + Math.floorMod(user, Shards.COUNT));

		Photo first = inShardOf(user, session -> {
			Photo photo = new Photo(user, "the first");
			session.save(photo);
			return photo;
		});
		System.out.println("inserted " + first.id);

		Photo last = inShardOf(user, session -> {
			Photo photo = null;
			for (int n = 1; n <= 1000; n++)
				session.save(photo = new Photo(user, "photo " + n));
			return photo;
		});
		System.out.println("inserted 1000 more, the last " + last.id);

		Object[] parts = inShardOf(user, session -> (Object[]) session
				.createSQLQuery("SELECT created_at, shard FROM snowid.id_parts(:id)")
				.setLong("id", first.id).uniqueResult());
		System.out.println("made " + ((Date) parts[0]).toInstant() + " in shard " + parts[1]);

		// A function that Hibernate does not know is passed on as it is.
		List<?> photos = inShardOf(user, session -> session
				.createQuery("from Photo where id >= snowid.min_id(:since) and id < snowid.min_id(:until) order by id desc")
				.setTimestamp("since", (Date) parts[0])
				.setTimestamp("until", new Date(((Date) parts[0]).getTime() + 60000))
				.list());
		System.out.println("in the minute from then: " + photos.size() + " photos, the newest " + ((Photo) photos.get(0)).id);

		// The next page has the ids below the last one of this page.
		int count = 0;
		long oldest = Long.MAX_VALUE;
		for (List<?> page = null; page == null || page.size() == 400; count += page.size()) {
			long before = oldest;
			page = inShardOf(user, session -> session
					.createQuery("from Photo where userId = :user and id < :before order by id desc")
					.setLong("user", user).setLong("before", before).setMaxResults(400)
					.list());
			if (!page.isEmpty())
				oldest = ((Photo) page.get(page.size() - 1)).id;
		}
		System.out.println("in pages of 400: " + count + " photos, the oldest " + oldest);

		inShardOf(user, session -> {
			for (int n = 1; n <= 1000; n++)
				session.save(new Event(user, "event " + n));
			return null;
		});
		System.out.println("inserted 1000 events");

		factories.values().forEach(SessionFactory::close);
	}
}
