import org.hibernate.dialect.PostgreSQLDialect;

/** Takes the next value of a shard's sequence with next_id(), not nextval(). */
public class SnowidDialect extends PostgreSQLDialect {
	@Override
	public String getSequenceNextValString(String sequence) {
		String shard = sequence.replaceFirst("^insta(\\d+)\\..*", "$1");
		return "select snowid.next_id(" + shard + ", '" + sequence + "')";
	}
}
