import java.util.Date;
import java.util.List;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/**
 * Photos and events of a user, in the shard where the user lives.
 *
 * JDBC_URL=jdbc:postgresql://127.0.0.1/app?user=app java ... Main 31341
 */
public class Main {
	/** One for each shard: default_schema qualifies all names, and blocks of ids are its own. */
	static SessionFactory shard(long shard) {
		return new Configuration()
				.addAnnotatedClass(Photo.class)
				.addAnnotatedClass(Event.class)
				.setProperty("hibernate.connection.driver_class", "org.postgresql.Driver")
				.setProperty("hibernate.connection.url", System.getenv("JDBC_URL"))
				.setProperty("hibernate.dialect", SnowidDialect.class.getName())
				.setProperty("hibernate.default_schema", "insta" + shard)
				.setProperty("hibernate.jdbc.batch_size", "50")
				.buildSessionFactory();
	}

	public static void main(String[] args) {
		long user = Long.parseLong(args[0]);
		long shard = Math.floorMod(user, 2000L);
		System.out.println("user " + user + " lives in shard " + shard);

		SessionFactory factory = shard(shard);
		Session session = factory.openSession();

		session.beginTransaction();
		Photo first = new Photo(user, "the first");
		session.save(first);
		session.getTransaction().commit();
		System.out.println("inserted " + first.id);

		session.beginTransaction();
		Photo last = null;
		for (int n = 1; n <= 1000; n++)
			session.save(last = new Photo(user, "photo " + n));
		session.getTransaction().commit();
		System.out.println("inserted 1000 more, the last " + last.id);

		session.beginTransaction();
		Object[] parts = (Object[]) session.createSQLQuery("SELECT created_at, shard FROM snowid.id_parts(:id)")
				.setLong("id", first.id).uniqueResult();
		System.out.println("made " + ((Date) parts[0]).toInstant() + " in shard " + parts[1]);

		// A function that Hibernate does not know is passed on as it is.
		List<?> photos = session.createQuery("from Photo where id >= snowid.min_id(:since) and id < snowid.min_id(:until) order by id desc")
				.setTimestamp("since", (Date) parts[0])
				.setTimestamp("until", new Date(((Date) parts[0]).getTime() + 60000))
				.list();
		System.out.println("in the minute from then: " + photos.size() + " photos, the newest " + ((Photo) photos.get(0)).id);
		session.getTransaction().commit();

		session.beginTransaction();
		for (int n = 1; n <= 1000; n++)
			session.save(new Event(user, "event " + n));
		session.getTransaction().commit();
		System.out.println("inserted 1000 events");

		session.close();
		factory.close();
	}
}
