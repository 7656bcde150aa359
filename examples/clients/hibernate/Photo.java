import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.Table;

/** Its id comes from the table's DEFAULT, with the INSERT. */
@Entity
@Table(name = "photos")
public class Photo {
	@Id
	@GeneratedValue(strategy = GenerationType.IDENTITY)
	Long id;

	@Column(name = "user_id")
	long userId;

	String caption;

	protected Photo() {
	}

	public Photo(long userId, String caption) {
		this.userId = userId;
		this.caption = caption;
	}
}
