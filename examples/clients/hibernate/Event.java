import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;
import javax.persistence.Table;
import org.hibernate.annotations.GenericGenerator;
import org.hibernate.annotations.Parameter;

/** Its ids come in blocks of 50, before the INSERT, so that Hibernate can batch. */
@Entity
@Table(name = "events")
public class Event {
	@Id
	@GeneratedValue(generator = "events")
	@GenericGenerator(name = "events", strategy = "enhanced-sequence", parameters = {
		@Parameter(name = "sequence_name", value = "events_id_seq"),
		@Parameter(name = "increment_size", value = "50"),	// the sequence's INCREMENT
		@Parameter(name = "optimizer", value = "pooled-lo"),	// next_id() is the block's first
	})
	Long id;

	@Column(name = "user_id")
	long userId;

	String what;

	protected Event() {
	}

	public Event(long userId, String what) {
		this.userId = userId;
		this.what = what;
	}
}
